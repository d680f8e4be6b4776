#include "raylet-c/agent/text.h"

#include <string.h>

size_t rc_utf8_length(const uint8_t *p, size_t n)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t length = p[0] < 0x80 ? 1 : (p[0] & 0xe0) == 0xc0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : (p[0] & 0xf8) == 0xf0 ? 4 : 0;
	if (length < 2 || length > n)
		return length == 1 ? 1 : 0;
	uint32_t c = p[0] & (0xffu >> (length + 1));
	for (size_t i = 1; i < length; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	return c < least[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : length;
}

void rc_json_string(rc_buf *out, const char *text, size_t n)
{
	const uint8_t *p = (const uint8_t *)text, *end = p + n;
	rc_buf_str(out, "\"");
	while (p < end) {
		size_t length = rc_utf8_length(p, (size_t)(end - p));
		if (!length)
			rc_buf_str(out, "?");
		else if (*p == '"' || *p == '\\')
			rc_buf_printf(out, "\\%c", *p);
		else if (*p < 0x20 || *p == 0x7f)
			rc_buf_printf(out, "\\u%04x", *p);
		else
			rc_buf_add(out, p, length);
		p += length ? length : 1;
	}
	rc_buf_str(out, "\"");
}

void rc_html_text(rc_buf *out, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '&': rc_buf_str(out, "&amp;"); break;
		case '<': rc_buf_str(out, "&lt;"); break;
		case '>': rc_buf_str(out, "&gt;"); break;
		case '"': rc_buf_str(out, "&quot;"); break;
		case '\'': rc_buf_str(out, "&#39;"); break;
		default: rc_buf_add(out, text, 1);
		}
	}
}
