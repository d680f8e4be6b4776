/* TLS credentials from PEM files (RAY_USE_TLS and RAY_TLS_* of both releases): one certificate for both ways, mutual.
 * A client checks the server's certificate against the CA and the address that it calls against the certificate's SANs; the
 * server demands a client certificate that the CA signed. Files are read once, at start. */
#define _GNU_SOURCE
#include <errno.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/rpc/internal.h"

enum { PEM_MAX = 4 << 20 };

static char *read_pem(const char *what, const char *path, rc_error *error)
{
	FILE *f = fopen(path, "re");
	if (!f) {
		rc_fail_errno(error, "cannot open the %s %s", what, path);
		return NULL;
	}
	rc_buf text = { 0 };
	size_t got;
	do {
		uint8_t *at = rc_buf_grow(&text, 4096);
		got = fread(at, 1, 4096, f);
		text.n -= 4096 - got;
	} while (got && text.n <= PEM_MAX);
	bool failed = ferror(f);
	if (failed)
		rc_fail_errno(error, "cannot read the %s %s", what, path);
	fclose(f);
	if (!failed && text.n > PEM_MAX) {
		rc_fail(error, RC_E_INVALID, "the %s %s is larger than %d bytes", what, path, PEM_MAX);
		failed = true;
	}
	if (!failed && !memmem(text.p, text.n, "-----BEGIN ", 11)) {
		rc_fail(error, RC_E_INVALID, "the %s %s is not a PEM file", what, path);
		failed = true;
	}
	char *result = failed ? NULL : rc_strndup(text.p, text.n);
	rc_buf_free(&text);
	return result;
}

int rc__tls_load(rc_rpc *rpc, const rc_rpc_options *o, rc_error *error)
{
	if (!o->tls_cert && !o->tls_key && !o->tls_ca)
		return 0;
	if (!o->tls_cert || !o->tls_key || !o->tls_ca)
		return rc_fail(error, RC_E_INVALID, "TLS needs a certificate, a key and a CA file; missing:%s%s%s", o->tls_cert ? "" : " certificate",
		               o->tls_key ? "" : " key", o->tls_ca ? "" : " CA");
	rpc->pem_cert = read_pem("TLS certificate", o->tls_cert, error);
	rpc->pem_key = rpc->pem_cert ? read_pem("TLS key", o->tls_key, error) : NULL;
	rpc->pem_ca = rpc->pem_key ? read_pem("TLS CA certificate", o->tls_ca, error) : NULL;
	if (rpc->pem_ca)
		return 0;
	rc__tls_free(rpc);
	return -1;
}

void rc__tls_free(rc_rpc *rpc)
{
	if (rpc->pem_key)
		explicit_bzero(rpc->pem_key, strlen(rpc->pem_key));
	free(rpc->pem_cert);
	free(rpc->pem_key);
	free(rpc->pem_ca);
	rpc->pem_cert = rpc->pem_key = rpc->pem_ca = NULL;
}

grpc_channel_credentials *rc__channel_credentials(const rc_rpc *rpc)
{
	if (!rpc->pem_ca)
		return grpc_insecure_credentials_create();
	grpc_ssl_pem_key_cert_pair pair = { rpc->pem_key, rpc->pem_cert };
	return grpc_ssl_credentials_create(rpc->pem_ca, &pair, NULL, NULL);
}

grpc_server_credentials *rc__server_credentials(const rc_rpc *rpc)
{
	if (!rpc->pem_ca)
		return grpc_insecure_server_credentials_create();
	grpc_ssl_pem_key_cert_pair pair = { rpc->pem_key, rpc->pem_cert };
	return grpc_ssl_server_credentials_create_ex(rpc->pem_ca, &pair, 1, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, NULL);
}
