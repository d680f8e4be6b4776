/* FI_HMEM is told only to those who ask for it: fi_getinfo.3, fi_mr.3 (FI_MR_HMEM). */
#include "raylet-c/fabric/listing.h"

#include <rdma/fi_domain.h>
#include <stdio.h>
#include <string.h>

#include "raylet-c/fabric/internal.h"

enum { MOST = 32 };

static void tell(const struct fi_info *list, void (*fn)(void *arg, const char *provider), void *arg)
{
	char seen[MOST][32];
	size_t n = 0;
	for (const struct fi_info *i = list; i && n < MOST; i = i->next) {
		const char *name = i->fabric_attr && i->fabric_attr->prov_name ? i->fabric_attr->prov_name : "";
		char core[32];
		size_t k = 0;
		snprintf(core, sizeof(core), "%.*s", (int)(strcspn(name, ";") < 31 ? strcspn(name, ";") : 31), name);
		while (k < n && strcmp(seen[k], core) != 0)
			k++;
		if (k < n || !*core)
			continue;
		strcpy(seen[n++], core);
		fn(arg, core);
	}
}

void rc_fabric_list(const rc_fabric_library *l, bool gpu_memory, void (*fn)(void *arg, const char *provider), void *arg)
{
	struct fi_domain_attr domain = { .mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM };
	struct fi_ep_attr ep = { .type = FI_EP_RDM };
	struct fi_info hints = { .caps = FI_MSG | FI_HMEM, .mode = ~UINT64_C(0), .ep_attr = &ep, .domain_attr = &domain }, *list = NULL;
	if (l->getinfo(l->api, NULL, NULL, 0, gpu_memory ? &hints : NULL, &list) != 0)
		return;
	tell(list, fn, arg);
	l->freeinfo(list);
}
