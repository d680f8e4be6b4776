/* Lines of a hostile other end. */
#include "raylet-c/doctor/pair_line.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *line = rc_strndup(data, size);
	rc_fabric_offer o, again;
	rc__pair_place p, place;
	rc_error error;
	rc_buf b = { 0 };

	if (rc__pair_offer_parse(line, &o, &error) == 0) {
		rc__pair_offer_pack(&o, &b);
		b.n--; /* without the new line */
		if (rc__pair_offer_parse(rc_buf_cstr(&b), &again, &error) != 0 || !rc_fabric_same(&o, &again))
			abort();
	}
	b.n = 0;
	if (rc__pair_place_parse(line, &p, &error) == 0) {
		rc__pair_place_pack(&p, &b);
		b.n--;
		if (rc__pair_place_parse(rc_buf_cstr(&b), &place, &error) != 0 || place.address_n != p.address_n || place.size != p.size)
			abort();
	}
	rc_buf_free(&b);
	free(line);
	return 0;
}
