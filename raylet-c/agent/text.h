/* Text for others to parse: UTF-8, JSON strings, HTML. Pure; any thread. */
#ifndef RC_AGENT_TEXT_H
#define RC_AGENT_TEXT_H

#include "raylet-c/base/buf.h"

/* The length of the well-formed character at p (of n > 0 bytes), or 0. */
size_t rc_utf8_length(const uint8_t *p, size_t n);
/* A string with its quotes. What is not UTF-8 becomes '?'. */
void rc_json_string(rc_buf *out, const char *text, size_t n);
/* Text with &, <, > and quotes replaced, fit for an attribute too. */
void rc_html_text(rc_buf *out, const char *text);

#endif
