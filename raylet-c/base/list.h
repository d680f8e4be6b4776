/* Intrusive doubly linked list. An item holds an rc_link; a list is an rc_link that points to itself. */
#ifndef RC_BASE_LIST_H
#define RC_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rc_link {
	struct rc_link *next, *prev;
} rc_link;

#define RC_CONTAINER(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define RC_LIST_FOREACH(l, head) for (rc_link *l = (head)->next, *l##_next = l->next; l != (head); l = l##_next, l##_next = l->next)

static inline void rc_list_init(rc_link *l)
{
	l->next = l->prev = l;
}
static inline bool rc_list_empty(const rc_link *l)
{
	return l->next == l;
}
static inline void rc_list_append(rc_link *head, rc_link *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}
static inline void rc_list_remove(rc_link *l) /* leaves l as an empty list: removing twice is harmless */
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	l->next = l->prev = l;
}

#endif
