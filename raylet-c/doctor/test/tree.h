/* Machines made up from descriptions: a text becomes a folder that stands for a machine's root.
 *
 *   file PATH TEXT                    a file with this text and a new line (TEXT may be missing)
 *   efa NAME PCI_ID FIRMWARE N        an EFA device, its driver's files, and /dev/infiniband/uverbsN
 *   net NAME MBITS                    an interface with a device behind it; MBITS may be -1
 *   library PATH exports=6,7 looks=8,9 text=A|B    a shared library with these plugin interfaces and constants
 *   probe NAME ... end                what a library tells (probe.h)
 *   # ...                             where the facts are from
 */
#ifndef RC_DOCTOR_TEST_TREE_H
#define RC_DOCTOR_TEST_TREE_H

#include <elf.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"

static inline void tree_write(const char *root, const char *path, const void *bytes, size_t n)
{
	char *full = rc_sprintf("%s%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(full, 0755);
		*slash = '/';
	}
	FILE *f = fopen(full, "w");
	if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
		fprintf(stderr, "%s cannot be written\n", full);
		exit(2);
	}
	free(full);
}

static inline void tree_file(const char *root, const char *text, const char *format, ...) __attribute__((format(printf, 3, 4)));
static inline void tree_file(const char *root, const char *text, const char *format, ...)
{
	char path[512];
	va_list args;
	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	char *line = rc_sprintf("%s\n", text);
	tree_write(root, path, line, strlen(line));
	free(line);
}

static inline void tree_efa(const char *root, const char *name, const char *pci, const char *firmware, const char *number)
{
	tree_file(root, "0x1d0f", "/sys/class/infiniband/%s/device/vendor", name);
	tree_file(root, pci, "/sys/class/infiniband/%s/device/device", name);
	tree_file(root, "1", "/sys/class/infiniband/%s/device/gdr", name);
	tree_file(root, firmware, "/sys/class/infiniband/%s/fw_ver", name);
	tree_file(root, name, "/sys/class/infiniband_verbs/uverbs%s/ibdev", number);
	tree_file(root, "", "/dev/infiniband/uverbs%s", number);
}

/* An ELF file with exported symbols ncclNetPlugin_vN, and constants. Lists: numbers with commas; texts with `|`. */
static inline void tree_library(rc_buf *out, const char *exports, const char *looks, const char *texts)
{
	static const char names[] = "\0.shstrtab\0.dynstr\0.dynsym\0.rodata";
	rc_buf strings = { 0 }, symbols = { 0 }, constants = { 0 };
	Elf64_Sym none = { 0 };
	char *copy, *rest, *word;
	rc_buf_add(&strings, "", 1);
	rc_buf_add(&constants, "", 1);
	rc_buf_add(&symbols, &none, sizeof(none));
	copy = rest = rc_strdup(exports);
	while ((word = strsep(&rest, ",")))
		if (*word) {
			Elf64_Sym s = { .st_name = (Elf64_Word)strings.n, .st_shndx = 4 };
			rc_buf_printf(&strings, "ncclNetPlugin_v%s", word);
			rc_buf_add(&strings, "", 1);
			rc_buf_add(&symbols, &s, sizeof(s));
		}
	free(copy);
	copy = rest = rc_strdup(looks);
	while ((word = strsep(&rest, ",")))
		if (*word) {
			rc_buf_printf(&constants, "ncclNetPlugin_v%s", word);
			rc_buf_add(&constants, "", 1);
		}
	free(copy);
	copy = rest = rc_strdup(texts);
	while ((word = strsep(&rest, "|"))) {
		rc_buf_str(&constants, word);
		rc_buf_add(&constants, "", 1);
	}
	free(copy);
	Elf64_Ehdr h = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT }, .e_type = ET_DYN,
		         .e_machine = EM_X86_64, .e_version = EV_CURRENT, .e_ehsize = sizeof(Elf64_Ehdr), .e_shentsize = sizeof(Elf64_Shdr),
		         .e_shnum = 5, .e_shstrndx = 1, .e_shoff = sizeof(Elf64_Ehdr) };
	Elf64_Shdr s[5] = { { 0 },
		            { .sh_name = 1, .sh_type = SHT_STRTAB, .sh_size = sizeof(names) },
		            { .sh_name = 11, .sh_type = SHT_STRTAB, .sh_size = strings.n },
		            { .sh_name = 19, .sh_type = SHT_DYNSYM, .sh_size = symbols.n, .sh_link = 2, .sh_entsize = sizeof(Elf64_Sym) },
		            { .sh_name = 27, .sh_type = SHT_PROGBITS, .sh_size = constants.n } };
	Elf64_Off at = sizeof(h) + sizeof(s);
	for (int i = 1; i < 5; i++) {
		s[i].sh_offset = at;
		at += s[i].sh_size;
	}
	rc_buf_add(out, &h, sizeof(h));
	rc_buf_add(out, s, sizeof(s));
	rc_buf_add(out, names, sizeof(names));
	rc_buf_add(out, strings.p, strings.n);
	rc_buf_add(out, symbols.p, symbols.n);
	rc_buf_add(out, constants.p, constants.n);
	rc_buf_free(&strings);
	rc_buf_free(&symbols);
	rc_buf_free(&constants);
}

static inline void tree_library_line(const char *root, char *words)
{
	char *path = strsep(&words, " "), *exports = strstr(words, "exports="), *looks = strstr(words, "looks="), *text = strstr(words, "text=");
	rc_buf b = { 0 };
	char *e = rc_strndup(exports + 8, strcspn(exports + 8, " ")), *l = rc_strndup(looks + 6, strcspn(looks + 6, " "));
	tree_library(&b, e, l, text + 5);
	tree_write(root, path, b.p, b.n);
	rc_buf_free(&b);
	free(e);
	free(l);
}

/* Adds a description to a root; later ones write over earlier ones. */
static inline void tree_describe(const char *root, const char *description)
{
	char *copy = rc_strdup(description), *rest = copy, *line, a[64], b[64], c[64], d[64];
	char *probe = NULL;
	rc_buf told = { 0 };
	while ((line = strsep(&rest, "\n"))) {
		if (probe && strcmp(line, "end") == 0) {
			char *path = rc_sprintf("/probe/%s", probe);
			tree_write(root, path, rc_buf_cstr(&told), told.n);
			free(path);
			rc_buf_free(&told);
			probe = NULL;
		} else if (probe) {
			rc_buf_printf(&told, "%s\n", line);
		} else if (strncmp(line, "probe ", 6) == 0) {
			probe = line + 6;
		} else if (strncmp(line, "library ", 8) == 0) {
			tree_library_line(root, line + 8);
		} else if (sscanf(line, "efa %63s %63s %63s %63s", a, b, c, d) == 4) {
			tree_efa(root, a, b, c, d);
		} else if (sscanf(line, "net %63s %63s", a, b) == 2) {
			tree_file(root, "up", "/sys/class/net/%s/operstate", a);
			tree_file(root, b, "/sys/class/net/%s/speed", a);
			tree_file(root, "", "/sys/class/net/%s/device/uevent", a);
		} else if (strncmp(line, "file ", 5) == 0) {
			char *path = line + 5, *text = path + strcspn(path, " ");
			if (*text)
				*text++ = '\0';
			tree_file(root, text, "%s", path);
		} else if (*line && *line != '#') {
			fprintf(stderr, "no such line in a description: %s\n", line);
			exit(2);
		}
	}
	free(copy);
}

/* The same from raylet-c/doctor/test/data/NAME (tests run at the root of the tree). */
static inline void tree_describe_file(const char *root, const char *name)
{
	char *path = rc_sprintf("raylet-c/doctor/test/data/%s", name);
	FILE *f = fopen(path, "r");
	rc_buf b = { 0 };
	if (!f) {
		fprintf(stderr, "%s cannot be read\n", path);
		exit(2);
	}
	uint8_t *p = rc_buf_grow(&b, 1 << 16);
	b.n = fread(p, 1, 1 << 16, f);
	fclose(f);
	tree_describe(root, rc_buf_cstr(&b));
	rc_buf_free(&b);
	free(path);
}

static inline int tree_remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st, (void)flag, (void)ftw;
	return remove(path);
}

static inline void tree_remove(const char *root)
{
	nftw(root, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
