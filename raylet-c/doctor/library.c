/* ELF sections are taken from the file's own table and checked against its size, so a broken file is an error, not a crash. */
#define _GNU_SOURCE /* memmem */
#include "raylet-c/doctor/library.h"

#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NET_SYMBOL "ncclNetPlugin_v"

enum { MAX_SECTIONS = 4096 };

/* The bytes of a section; empty when it does not lie in the file. */
static rc_view section_bytes(rc_view file, const Elf64_Shdr *s)
{
	if (s->sh_type == SHT_NOBITS || s->sh_offset > file.n || s->sh_size > file.n - s->sh_offset)
		return (rc_view){ 0 };
	return rc_view_of(file.p + s->sh_offset, (size_t)s->sh_size);
}

static Elf64_Shdr header_at(rc_view table, size_t i)
{
	Elf64_Shdr s;
	memcpy(&s, table.p + i * sizeof(s), sizeof(s));
	return s;
}

/* The text at an offset of a string table; "" when it does not end there. */
static const char *text_at(rc_view strings, uint64_t offset)
{
	if (offset >= strings.n || !memchr(strings.p + offset, 0, strings.n - offset))
		return "";
	return (const char *)strings.p + offset;
}

static uint32_t net_bit(const char *text, size_t n)
{
	unsigned version = 0;
	size_t i = 0;
	for (; i < n && i < 2 && isdigit((unsigned char)text[i]); i++)
		version = version * 10 + (unsigned)(text[i] - '0');
	return i > 0 && version < 32 && (i == n || !isalnum((unsigned char)text[i])) ? UINT32_C(1) << version : 0;
}

static void take_symbols(rc_view symbols, rc_view strings, rc_library *ret)
{
	for (size_t i = 0; i < symbols.n / sizeof(Elf64_Sym); i++) {
		Elf64_Sym s;
		memcpy(&s, symbols.p + i * sizeof(s), sizeof(s));
		const char *name = text_at(strings, s.st_name);
		if (s.st_shndx != SHN_UNDEF && strncmp(name, NET_SYMBOL, strlen(NET_SYMBOL)) == 0)
			ret->net_exported |= net_bit(name + strlen(NET_SYMBOL), strlen(name + strlen(NET_SYMBOL)));
	}
}

/* What follows prefix up to a blank or the end, when it begins with a digit. */
static void take_version(const char *text, size_t n, const char *prefix, char *ret, size_t size)
{
	const char *at = memmem(text, n, prefix, strlen(prefix));
	if (!at || *ret)
		return;
	at += strlen(prefix);
	size_t left = n - (size_t)(at - text), k = 0;
	while (k < left && k + 1 < size && (isalnum((unsigned char)at[k]) || strchr("+-._", at[k])))
		k++;
	if (k > 0 && isdigit((unsigned char)at[0])) {
		memcpy(ret, at, k);
		ret[k] = '\0';
	}
}

static void take_text(const char *text, size_t n, rc_library *ret)
{
	if (n > strlen(NET_SYMBOL) && memcmp(text, NET_SYMBOL, strlen(NET_SYMBOL)) == 0)
		ret->net_looked_for |= net_bit(text + strlen(NET_SYMBOL), n - strlen(NET_SYMBOL));
	take_version(text, n, "NCCL version ", ret->version, sizeof(ret->version));
	take_version(text, n, "aws-ofi-nccl ", ret->version, sizeof(ret->version));
	if (n == strlen("NCCL_PROTO") && memcmp(text, "NCCL_PROTO", n) == 0)
		ret->guards_protocol = true;
	if ((n == 13 && memcmp(text, "AWS Libfabric", n) == 0) || (n == 9 && !*ret->net_name && memcmp(text, "Libfabric", n) == 0))
		snprintf(ret->net_name, sizeof(ret->net_name), "%.*s", (int)n, text);
}

static void take_constants(rc_view bytes, rc_library *ret)
{
	if (bytes.n == 0)
		return;
	const char *p = (const char *)bytes.p, *end = p + bytes.n;
	while (p < end) {
		const char *stop = memchr(p, 0, (size_t)(end - p));
		if (!stop)
			stop = end;
		if (stop - p >= 9) /* the shortest text that is looked for */
			take_text(p, (size_t)(stop - p), ret);
		p = stop + 1;
	}
}

int rc_library_parse(rc_view file, rc_library *ret, rc_error *error)
{
	Elf64_Ehdr h;
	if (file.n < sizeof(h) || memcmp(file.p, ELFMAG, SELFMAG) != 0 || file.p[EI_CLASS] != ELFCLASS64)
		return rc_fail(error, RC_E_INVALID, "no 64-bit ELF file");
	memcpy(&h, file.p, sizeof(h));
	size_t n = h.e_shnum;
	if (h.e_shentsize != sizeof(Elf64_Shdr) || n == 0 || n > MAX_SECTIONS || h.e_shoff > file.n ||
	    n * sizeof(Elf64_Shdr) > file.n - h.e_shoff || h.e_shstrndx >= n)
		return rc_fail(error, RC_E_INVALID, "the ELF file has no table of sections");
	rc_view table = rc_view_of(file.p + h.e_shoff, n * sizeof(Elf64_Shdr));
	Elf64_Shdr names_header = header_at(table, h.e_shstrndx);
	rc_view names = section_bytes(file, &names_header);
	rc_library found = { 0 };
	for (size_t i = 0; i < n; i++) {
		Elf64_Shdr s = header_at(table, i);
		if (s.sh_type == SHT_DYNSYM && s.sh_link < n) {
			Elf64_Shdr strings = header_at(table, s.sh_link);
			take_symbols(section_bytes(file, &s), section_bytes(file, &strings), &found);
		} else if (s.sh_type == SHT_PROGBITS && strncmp(text_at(names, s.sh_name), ".rodata", 7) == 0) {
			take_constants(section_bytes(file, &s), &found);
		}
	}
	memcpy(found.path, ret->path, sizeof(found.path));
	*ret = found;
	return 0;
}

int rc_library_read(const char *path, rc_library *ret, rc_error *error)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return rc_fail_errno(error, "%s cannot be opened", path);
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
		close(fd);
		return rc_fail(error, RC_E_INVALID, "%s is no file with content", path);
	}
	void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED)
		return rc_fail_errno(error, "%s cannot be mapped", path);
	rc_library found = { 0 };
	rc_error why;
	int rc = rc_library_parse(rc_view_of(bytes, (size_t)st.st_size), &found, &why);
	munmap(bytes, (size_t)st.st_size);
	if (rc != 0)
		return rc_fail(error, why.code, "%s: %s", path, why.text);
	snprintf(found.path, sizeof(found.path), "%s", path);
	*ret = found;
	return 0;
}

int rc_library_common_net(const rc_library *nccl, const rc_library *plugin)
{
	uint32_t common = nccl->net_looked_for & plugin->net_exported;
	return common ? 31 - __builtin_clz(common) : 0;
}

void rc_library_net_text(uint32_t versions, char ret[96])
{
	size_t n = 0;
	ret[0] = '\0';
	for (unsigned i = 0; i < 32 && n < 80; i++)
		if (versions >> i & 1)
			n += (size_t)snprintf(ret + n, 96 - n, "%sv%u", n ? ", " : "", i);
	if (n == 0)
		snprintf(ret, 96, "none");
}
