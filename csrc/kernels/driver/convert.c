/* Numbers of one float dtype to another. */
#include "leave.h"

static uint64_t convert_all(const amn_level *level, int src_dtype, int out, const uint8_t *src,
                            amn_buffer dst, size_t n) {
  _Alignas(64) float values[SCRATCH];
  way_out way;
  uint64_t n_overflow = 0;
  find_way_out(&way, level, dst);
  for (size_t done = 0, count; done < n; done += count) {
    uint8_t *to = dst.data + done * out_bytes[out];
    count = (size_t)at_once(&way, min_u64(n - done, SCRATCH), out_bytes[out]);
    const uint8_t *widened = src + done * float_bytes[src_dtype];
    if (src_dtype != AMN_FLOAT_F32) {
      n_overflow += level->widen[src_dtype](widened, (uint8_t *)values, count);
      widened = (const uint8_t *)values;
    }
    n_overflow += level->narrow[out](widened, room_for(&way, to), count);
    leave(&way, to, count * out_bytes[out]);
  }
  end_way_out(&way, level);
  return n_overflow;
}

amn_status amn_convert(int level, int src_dtype, int out, amn_bytes src, amn_buffer dst,
                       uint64_t *n_overflow) {
  const amn_level *table = amn_level_at(level);
  *n_overflow = 0;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (!is_convertible(src_dtype) || out < 0 || out >= AMN_N_OUTS) return AMN_BAD_DTYPE;
  if (src.n_bytes % float_bytes[src_dtype]) return AMN_SHORT_SRC;
  const uint64_t n = src.n_bytes / float_bytes[src_dtype];
  if (n > dst.n_bytes / out_bytes[out]) return AMN_SHORT_DST;
  if (n == 0) return AMN_OK;
  uint64_t fp_mode = amn_fp_mode_enter();
  *n_overflow = convert_all(table, src_dtype, out, src.data, dst, (size_t)n);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
