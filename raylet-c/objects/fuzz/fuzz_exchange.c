/* What nodes of ours say to each other, from hostile peers. The input: a byte for the kind, then the message. A message that is
 * read must come out the same when it is written again. */
#include <stdlib.h>
#include <string.h>

#include "raylet-c/objects/exchange.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static rc__om_keep keep;
	static rc__om_kept kept;
	rc_view bytes = rc_view_of(data + 1, size ? size - 1 : 0);
	rc_buf again = { 0 };
	rc__om_ask ask;
	rc__om_answer answer;
	bool read = false;
	rc_error e;

	if (size < 1)
		return 0;
	switch (data[0] % 4) {
	case 0:
		if ((read = rc__om_ask_read(bytes, &ask, &e) == 0))
			rc__om_ask_write(&ask, &again);
		break;
	case 1:
		if ((read = rc__om_answer_read(bytes, &answer, &e) == 0))
			rc__om_answer_write(&answer, &again);
		break;
	case 2:
		if ((read = rc__om_keep_read(bytes, &keep, &e) == 0))
			rc__om_keep_write(&keep, &again);
		break;
	default:
		if ((read = rc__om_kept_read(bytes, &kept, &e) == 0))
			rc__om_kept_write(&kept, &again);
	}
	if (read && !rc_view_eq(bytes, rc_view_of(again.p, again.n)))
		abort();
	rc_buf_free(&again);
	return 0;
}
