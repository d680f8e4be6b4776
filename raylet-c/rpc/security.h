/* TLS and token settings from the environment, as every Ray process reads them (2.35.0: TLS; 2.60.0: TLS and tokens; a token
 * set under a 2.35.0 head does no harm: that release ignores it).
 *   RAY_USE_TLS=1|true           needs RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY, RAY_TLS_CA_CERT (paths of PEM files)
 *   RAY_AUTH_MODE=token          the token is, in this order: RAY_AUTH_TOKEN; the file RAY_AUTH_TOKEN_PATH; with
 *                                RAY_ENABLE_K8S_TOKEN_AUTH=true the service account's file; ~/.ray/auth_token. The first
 *                                line, white space trimmed. Other values, or none: tokens are off.
 * Main thread, before the rpc module is made. */
#ifndef RC_RPC_SECURITY_H
#define RC_RPC_SECURITY_H

#include "raylet-c/rpc/rpc.h"

typedef struct rc_security {
	char *tls_cert, *tls_key, *tls_ca; /* all or none */
	char *token;                       /* NULL: off */
} rc_security;

/* The error names the variable or file. Free with rc_security_free. */
int rc_security_from_env(rc_security *ret, rc_error *error) RC_WARN_UNUSED;
/* Fills the fields of an rc_rpc_options; the strings stay s's. */
void rc_security_apply(const rc_security *s, rc_rpc_options *options);
void rc_security_free(rc_security *s);

#endif
