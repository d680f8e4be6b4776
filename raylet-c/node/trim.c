/* See trim.h. */
#define _GNU_SOURCE
#include "raylet-c/node/trim.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

bool rc_trim_due(rc_trim *t, uint64_t bytes)
{
	t->quiet = bytes == t->seen ? t->quiet + 1 : 0;
	t->seen = bytes;
	if (bytes == t->given_back || t->quiet < RC_TRIM_LOOKS)
		return false;
	t->given_back = bytes;
	return true;
}

/* Segments that are not written to hold what the file holds: what is needed again is mapped again, from the page cache. */
static int unmap_code(struct dl_phdr_info *program, size_t size, void *arg)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	(void)size;
	(void)arg;
	for (size_t i = 0; i < program->dlpi_phnum; i++) {
		const ElfW(Phdr) *s = &program->dlpi_phdr[i];
		uintptr_t from = (program->dlpi_addr + s->p_vaddr) & ~(page - 1), to = program->dlpi_addr + s->p_vaddr + s->p_memsz;
		if (s->p_type == PT_LOAD && !(s->p_flags & PF_W))
			madvise((void *)from, to - from, MADV_DONTNEED);
	}
	return 1; /* the first one is the program itself; libraries are shared with others anyway */
}

static void give_back(void *arg)
{
	(void)arg;
	malloc_trim(0);
	dl_iterate_phdr(unmap_code, NULL);
}

void rc_trim_start(rc_loop *loop)
{
	rc_loop_work(loop, give_back, NULL, NULL);
}
