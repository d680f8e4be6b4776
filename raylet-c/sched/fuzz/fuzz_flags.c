/* Text from flags and from names: the resource list, the labels, names of placement groups' resources. */
#include <stdlib.h>
#include <string.h>

#include "raylet-c/sched/labels.h"
#include "raylet-c/sched/resources.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = rc_strndup(data, size);
	rc_error e;
	rc_amounts a = { 0 };
	if (rc_amounts_parse_list(text, &a, &e) == 0) {
		rc_resources *r = rc_resources_create(&a, NULL, &e);
		if (r) {
			rc_amounts_drop_zeros(&a);
			rc_resources_free(r, rc_resources_allocate(r, &a));
			if (!rc_resources_idle(r))
				abort();
		}
		rc_resources_destroy(r);
	}
	rc_labels l = { 0 };
	if (rc_labels_parse(text, &l, &e) == 0)
		for (size_t i = 0; i < l.n; i++)
			if (strcmp(rc_labels_get(&l, l.v[i].key), l.v[i].value) != 0)
				abort();
	rc_group_name g;
	if (rc_group_name_parse(text, &g) && (g.base.n == 0 || g.group.n != 2 * RC_PG_ID))
		abort();
	rc_labels_free(&l);
	rc_amounts_free(&a);
	free(text);
	return 0;
}
