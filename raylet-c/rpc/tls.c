/* TLS credentials from PEM files (RAY_USE_TLS and RAY_TLS_* of both releases): one certificate for both ways, mutual.
 * A client checks the server's certificate against the CA and the address that it calls against the certificate's SANs; the
 * server demands a client certificate that the CA signed. Files are read once, at start. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <grpc/grpc_security.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
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
	if (rpc->pem_ca) {
		rpc->cert_path = rc_strdup(o->tls_cert);
		return 0;
	}
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
	free(rpc->cert_path);
	rpc->pem_cert = rpc->pem_key = rpc->pem_ca = rpc->cert_path = NULL;
}

/* Adds "DNS:a, IP:b"; true when one of the names is the address. gRPC compares addresses as text, whatever kind of name has it. */
static bool list_names(const X509 *cert, const char *address, rc_buf *ret_names)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
	bool found = false;
	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
		char text[256] = "";
		if (name->type == GEN_IPADD)
			inet_ntop(name->d.iPAddress->length == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name->d.iPAddress), text, sizeof(text));
		else if (name->type == GEN_DNS)
			snprintf(text, sizeof(text), "%.*s", ASN1_STRING_length(name->d.dNSName), ASN1_STRING_get0_data(name->d.dNSName));
		else
			continue;
		found |= strcmp(text, address) == 0;
		if (ret_names->n < 600)
			rc_buf_printf(ret_names, "%s%s:%s", ret_names->n ? ", " : "", name->type == GEN_DNS ? "DNS" : "IP", text);
	}
	GENERAL_NAMES_free(names);
	return found || X509_check_host((X509 *)cert, address, 0, 0, NULL) == 1; /* a host name; also by wildcard or, lacking others, the CN */
}

int rc_tls_check_address(const rc_rpc *rpc, const char *address, rc_error *error)
{
	if (!rpc->pem_cert)
		return 0;
	BIO *text = BIO_new_mem_buf(rpc->pem_cert, -1);
	X509 *cert = text ? PEM_read_bio_X509(text, NULL, NULL, NULL) : NULL;
	rc_buf names = { 0 };
	int rc = 0;
	if (!cert)
		rc = rc_fail(error, RC_E_INVALID, "the TLS certificate %s has no readable certificate", rpc->cert_path);
	else if (!list_names(cert, address, &names))
		rc = rc_fail(error, RC_E_INVALID,
		             "the TLS certificate %s does not list %s, the address by which others call this node, so all of them would refuse it; it lists %s",
		             rpc->cert_path, address, names.n ? rc_buf_cstr(&names) : "no name");
	rc_buf_free(&names);
	X509_free(cert);
	BIO_free(text);
	return rc;
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
