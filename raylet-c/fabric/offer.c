/* See offer.h. */
#include "raylet-c/fabric/offer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/fabric/internal.h"

static const char *const order[] = { "shm", "efa", "tcp", "net", "sockets" };
enum { KNOWN = sizeof order / sizeof *order };
_Static_assert((int)KNOWN <= (int)RC_FABRIC_MAX_OFFERS, "one offer a provider");

int rc_fabric_rank(const char *provider)
{
	for (int i = 0; i < KNOWN; i++)
		if (strcmp(order[i], provider) == 0)
			return i;
	return -1;
}

static bool is_auto(const char *providers)
{
	return !providers || !*providers || strcmp(providers, "auto") == 0;
}

bool rc_fabric_wanted(const char *providers, const char *provider, size_t *ret)
{
	size_t position = 0;

	if (is_auto(providers)) {
		int rank = rc_fabric_rank(provider);

		if (ret && rank >= 0)
			*ret = (size_t)rank;
		return rank >= 0;
	}
	for (const char *p = providers; *p; position++) {
		size_t n = strcspn(p, ", ");

		if (n && n == strlen(provider) && strncmp(p, provider, n) == 0) {
			if (ret)
				*ret = position;
			return true;
		}
		p += n;
		p += strspn(p, ", ");
	}
	return false;
}

bool rc_fabric_same(const rc_fabric_offer *a, const rc_fabric_offer *b)
{
	return strcmp(a->provider, b->provider) == 0 && strcmp(a->place, b->place) == 0 && a->protocol == b->protocol &&
	       a->protocol_version == b->protocol_version;
}

int rc_fabric_choose(const rc_fabric_offer *mine, size_t n_mine, const rc_fabric_offer *theirs, size_t n_theirs)
{
	for (size_t i = 0; i < n_mine; i++)
		for (size_t k = 0; k < n_theirs; k++)
			if (mine[i].read && rc_fabric_same(&mine[i], &theirs[k]))
				return (int)i;
	return -1;
}

/* ---- what is here ---- */

/* Who shares memory and may read it: one boot, one /dev/shm, one process namespace, one user. "" when it cannot be told: then
 * nobody is taken for a neighbour. */
static void find_place(char ret[RC_FABRIC_PLACE])
{
	char boot[64] = "";
	struct stat memory, processes;
	uint64_t a = 14695981039346656037ull, b = 1099511628211ull;
	char text[256];
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (f) {
		if (!fgets(boot, sizeof boot, f))
			boot[0] = '\0';
		fclose(f);
	}
	ret[0] = '\0';
	if (!boot[0] || stat("/dev/shm", &memory) < 0 || stat("/proc/self/ns/pid", &processes) < 0)
		return;
	snprintf(text, sizeof text, "%s %llu %llu %llu", boot, (unsigned long long)memory.st_dev, (unsigned long long)processes.st_ino,
	         (unsigned long long)geteuid());
	for (const char *p = text; *p; p++) { /* two FNV sums: names equal things, hides nothing */
		a = (a ^ (uint8_t)*p) * 1099511628211ull;
		b = (b + (uint8_t)*p) * 14695981039346656037ull;
	}
	snprintf(ret, RC_FABRIC_PLACE, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

static struct fi_info *hints_for(const rc_fabric_library *l, const char *provider)
{
	struct fi_info *h = l->dupinfo(NULL); /* a fresh one */

	if (!h)
		return NULL;
	h->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_READ | FI_REMOTE_READ;
	h->mode = FI_CONTEXT | FI_CONTEXT2;
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->domain_attr->threading = FI_THREAD_DOMAIN;
	h->domain_attr->resource_mgmt = FI_RM_ENABLED;
	h->domain_attr->av_type = FI_AV_TABLE;
	h->fabric_attr->prov_name = strdup(provider);
	return h;
}

struct fi_info *rc__fabric_info(const rc_fabric_library *l, const char *provider, const char *ip, rc_error *e)
{
	bool by_ip = strcmp(provider, "shm") != 0 && strcmp(provider, "efa") != 0;
	struct fi_info *hints = hints_for(l, provider), *found = NULL;
	rc__signals signals;
	int rc;

	if (!hints) {
		rc_fail(e, RC_E_NO_MEMORY, "fabric: no memory");
		return NULL;
	}
	rc__signals_keep(&signals);
	rc = l->getinfo(l->api, by_ip ? ip : NULL, NULL, by_ip && ip ? FI_SOURCE : 0, hints, &found);
	rc__signals_restore(&signals);
	l->freeinfo(hints);
	if (rc) {
		rc_fail(e, RC_E_NOT_FOUND, "provider %s: %s", provider, l->strerror(-rc));
		return NULL;
	}
	return found;
}

void rc__fabric_offer_of(const struct fi_info *info, rc_fabric_offer *ret)
{
	*ret = (rc_fabric_offer){
		.protocol = info->ep_attr->protocol,
		.protocol_version = info->ep_attr->protocol_version,
		.read = (info->caps & FI_RMA) != 0,
		.own_keys = !(info->domain_attr->mr_mode & FI_MR_PROV_KEY),
		.registers = (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0,
		.link_bits = info->nic && info->nic->link_attr ? info->nic->link_attr->speed : 0,
		.max_message = info->ep_attr->max_msg_size,
	};
	snprintf(ret->provider, sizeof ret->provider, "%s", info->fabric_attr->prov_name);
	snprintf(ret->domain, sizeof ret->domain, "%s", info->domain_attr->name);
	if (strcmp(ret->provider, "shm") == 0)
		find_place(ret->place);
}

static void insert(rc_fabric_offer *list, size_t *positions, size_t n, const rc_fabric_offer *o, size_t position)
{
	size_t i = n;

	for (; i > 0 && positions[i - 1] > position; i--) {
		list[i] = list[i - 1];
		positions[i] = positions[i - 1];
	}
	list[i] = *o;
	positions[i] = position;
}

size_t rc_fabric_offers(const rc_fabric_library *l, const rc_fabric_settings *s, rc_fabric_offer *ret, rc_error *e)
{
	size_t positions[RC_FABRIC_MAX_OFFERS], n = 0;
	rc_buf why = { 0 };

	for (int i = 0; i < KNOWN; i++) {
		struct fi_info *info;
		rc_fabric_offer o;
		rc_error one;
		size_t position;

		if (!rc_fabric_wanted(s->providers, order[i], &position))
			continue;
		info = rc__fabric_info(l, order[i], s->ip, &one);
		if (!info) {
			rc_buf_printf(&why, "%s%s", why.n ? "; " : "", one.text);
			continue;
		}
		rc__fabric_offer_of(info, &o);
		l->freeinfo(info);
		/* Asked for "tcp", libfabric may answer with a layer above it, which has its own turn; shm without a known place
		 * would reach nobody. */
		if (strcmp(o.provider, order[i]) != 0 || (strcmp(o.provider, "shm") == 0 && !o.place[0]))
			continue;
		insert(ret, positions, n++, &o, position);
	}
	if (n == 0)
		rc_fail(e, RC_E_NOT_FOUND, "no provider of %s fits RAYLET_C_FABRIC=%s: %s", l->path, s->providers ? s->providers : "auto",
		        why.n ? rc_buf_cstr(&why) : "none of these names is known");
	rc_buf_free(&why);
	return n;
}
