/* ggml's searches for scales, eight at once: lane i is search i, its operations and sums in the
 * order of the scalar code, so that each lane gives the scalar's bits.
 *
 * Codes are kept by the last one only: those of others follow from what was found. What is `wild`
 * is left to the scalar code: numbers so far from the levels that nearest_level would not give what
 * nearest_int gives.
 *
 * Needs: quantize.tpl.h. Defines: no kernel; searches. */

#define NEAREST_INT 12582912.0f /* 1.5 * 2^23: a float32 beside it counts units */
#define SEARCH_LANES_MAX 32
#define SEARCH_NONE 1e-15f /* what is smaller counts as zero */

AMN_FORCE_INLINE vec_f32 choose_f32(vec mask, vec_f32 a, vec_f32 b) {
  return v_f32_from_bits(v_select(mask, v_bits_f32(a), v_bits_f32(b)));
}

/* Number k of each of eight runs in the lanes of out[k]. */
AMN_FORCE_INLINE void load_runs(const float *src, size_t apart, int n, vec_f32 *out) {
  for (int at = 0; at < n; at += 8) {
    vec rows[8];
    for (int i = 0; i < 8; i++) rows[i] = v_load(src + (size_t)i * apart + at);
    v_transpose_u32(rows);
    for (int i = 0; i < 8; i++) out[at + i] = v_f32_from_bits(rows[i]);
  }
}

/* As nearest_int does it, whatever the number. */
AMN_FORCE_INLINE vec nearest_s32(vec_f32 a) {
  const vec bits = v_bits_f32(v_add_f32(a, v_set_f32(NEAREST_INT)));
  return v_add_u32(v_and(bits, v_set_u32(0x007fffff)), v_set_u32(0u - 0x00400000u));
}

/* The nearest level of low to high, of numbers below 2^22. */
AMN_FORCE_INLINE vec_f32 nearest_level(vec_f32 a, float low, float high) {
  const vec_f32 unit = v_set_f32(NEAREST_INT);
  const vec_f32 above = v_max_f32(v_add_f32(a, unit), v_set_f32(NEAREST_INT + low));
  return v_sub_f32(v_min_f32(above, v_set_f32(NEAREST_INT + high)), unit);
}

/* The numbers of eight searches, and how much each weighs. */
typedef struct {
  vec_f32 x[SEARCH_LANES_MAX], weight[SEARCH_LANES_MAX];
} search_lanes;

/* ---- x = scale * code - min ---- */

/* Which scales are tried: those of first, first + step, ... more levels than there are. */
typedef struct {
  float first, step;
  int n, is_absolute; /* whether magnitudes of errors are summed, not squares */
} affine_plan;

typedef struct {
  vec_f32 scale, low, inverse, from; /* codes are those of (x - from) * inverse */
  vec is_flat, is_wild;
} affine_found;

/* What does not change, for each of a few groups of eight. */
typedef struct {
  vec_f32 least, most, sum_w, sum_x; /* least: below 0 or not */
} affine_range;

AMN_FORCE_INLINE affine_range affine_range_of(int n, const search_lanes *lanes) {
  const vec_f32 first = lanes->x[0], weight = lanes->weight[0];
  affine_range range = {first, first, weight, v_mul_f32(weight, first)};
  for (int i = 1; i < n; i++) {
    range.least = v_min_f32(lanes->x[i], range.least);
    range.most = v_max_f32(lanes->x[i], range.most);
    range.sum_w = v_add_f32(range.sum_w, lanes->weight[i]);
    range.sum_x = v_add_f32(range.sum_x, v_mul_f32(lanes->weight[i], lanes->x[i]));
  }
  return range;
}

/* Where least or most would be too far away from the levels; what lies between them is not. */
AMN_FORCE_INLINE vec affine_is_wild(const affine_range *range, vec_f32 low, vec_f32 inverse) {
  const vec_f32 a = magnitude_f32(v_mul_f32(inverse, v_sub_f32(range->least, low)));
  const vec_f32 b = magnitude_f32(v_mul_f32(inverse, v_sub_f32(range->most, low)));
  const vec_f32 bound = v_set_f32(4194304.0f);
  return v_xor(v_and(v_greater_f32(bound, a), v_greater_f32(bound, b)), v_set_u8(255));
}

AMN_FORCE_INLINE vec_f32 affine_level(int largest, vec_f32 x, vec_f32 low, vec_f32 inverse) {
  return nearest_level(v_mul_f32(inverse, v_sub_f32(x, low)), 0.0f, (float)largest);
}

AMN_FORCE_INLINE vec_f32 affine_off(int is_absolute, vec_f32 x, vec_f32 weight, vec_f32 level,
                                    vec_f32 scale, vec_f32 low) {
  const vec_f32 off = v_sub_f32(v_add_f32(v_mul_f32(scale, level), low), x);
  return v_mul_f32(weight, is_absolute ? magnitude_f32(off) : v_mul_f32(off, off));
}

/* A zero keeps its sign. */
AMN_FORCE_INLINE vec_f32 not_above_0(vec_f32 a) {
  const vec_f32 zero = v_set_f32(0.0f);
  return choose_f32(v_greater_f32(a, zero), zero, a);
}

/* make_qkx2_quants and make_qkx3_quants, for two groups of eight: what one waits for, the other
 * does. */
AMN_FORCE_INLINE void search_affine_lanes(int n, int largest, const affine_plan *plan,
                                          const search_lanes lanes[2], affine_found found[2]) {
  affine_range range[2];
  vec_f32 best[2], low[2], scale[2], inverse[2], levels[2][SEARCH_LANES_MAX];
  vec is_wild[2];
  for (int g = 0; g < 2; g++) {
    range[g] = affine_range_of(n, &lanes[g]);
    low[g] = not_above_0(range[g].least);
    inverse[g] = v_div_f32(v_set_f32((float)largest), v_sub_f32(range[g].most, low[g]));
    scale[g] = v_div_f32(v_set_f32(1.0f), inverse[g]);
    best[g] = v_set_f32(0.0f);
    found[g].inverse = inverse[g];
    found[g].from = low[g];
    found[g].is_flat = v_xor(v_greater_f32(range[g].most, low[g]), v_set_u8(255));
    is_wild[g] = affine_is_wild(&range[g], low[g], inverse[g]);
  }
  for (int i = 0; i < n; i++)
    for (int g = 0; g < 2; g++) {
      const vec_f32 x = lanes[g].x[i], weight = lanes[g].weight[i];
      const vec_f32 level = affine_level(largest, x, low[g], inverse[g]);
      best[g] =
          v_add_f32(best[g], affine_off(plan->is_absolute, x, weight, level, scale[g], low[g]));
    }
  for (int k = 0; k < plan->n; k++) {
    const float parts = plan->first + plan->step * (float)k + (float)largest;
    vec_f32 sum_l[2], sum_l2[2], sum_xl[2], new_scale[2], new_low[2], error[2];
    vec is_fit[2];
    for (int g = 0; g < 2; g++) {
      sum_l[g] = sum_l2[g] = sum_xl[g] = error[g] = v_set_f32(0.0f);
      inverse[g] = v_div_f32(v_set_f32(parts), v_sub_f32(range[g].most, low[g]));
      is_wild[g] = v_or(is_wild[g], affine_is_wild(&range[g], low[g], inverse[g]));
    }
    for (int i = 0; i < n; i++)
      for (int g = 0; g < 2; g++) {
        const vec_f32 x = lanes[g].x[i], weight = lanes[g].weight[i];
        const vec_f32 level = affine_level(largest, x, low[g], inverse[g]);
        const vec_f32 weighed = v_mul_f32(weight, level);
        levels[g][i] = level;
        sum_l[g] = v_add_f32(sum_l[g], weighed);
        sum_l2[g] = v_add_f32(sum_l2[g], v_mul_f32(weighed, level));
        sum_xl[g] = v_add_f32(sum_xl[g], v_mul_f32(weighed, x));
      }
    for (int g = 0; g < 2; g++) {
      const vec_f32 sum_w = range[g].sum_w, sum_x = range[g].sum_x, zero = v_set_f32(0.0f);
      const vec_f32 determinant =
          v_sub_f32(v_mul_f32(sum_w, sum_l2[g]), v_mul_f32(sum_l[g], sum_l[g]));
      const vec_f32 above = v_sub_f32(v_mul_f32(sum_w, sum_xl[g]), v_mul_f32(sum_x, sum_l[g]));
      const vec_f32 below = v_sub_f32(v_mul_f32(sum_l2[g], sum_x), v_mul_f32(sum_l[g], sum_xl[g]));
      new_low[g] = v_div_f32(below, determinant);
      const vec is_above = v_greater_f32(new_low[g], zero);
      new_scale[g] = v_div_f32(choose_f32(is_above, sum_xl[g], above),
                               choose_f32(is_above, sum_l2[g], determinant));
      new_low[g] = choose_f32(is_above, zero, new_low[g]);
      is_fit[g] = v_greater_f32(determinant, zero);
    }
    for (int i = 0; i < n; i++)
      for (int g = 0; g < 2; g++)
        error[g] =
            v_add_f32(error[g], affine_off(plan->is_absolute, lanes[g].x[i], lanes[g].weight[i],
                                           levels[g][i], new_scale[g], new_low[g]));
    for (int g = 0; g < 2; g++) {
      const vec is_better = v_and(is_fit[g], v_greater_f32(best[g], error[g]));
      best[g] = choose_f32(is_better, error[g], best[g]);
      scale[g] = choose_f32(is_better, new_scale[g], scale[g]);
      found[g].inverse = choose_f32(is_better, inverse[g], found[g].inverse);
      found[g].from = choose_f32(is_better, low[g], found[g].from);
      low[g] = choose_f32(is_better, new_low[g], low[g]);
    }
  }
  for (int g = 0; g < 2; g++) {
    found[g].scale = v_f32_from_bits(v_and_not(found[g].is_flat, v_bits_f32(scale[g])));
    found[g].low = low[g];
    found[g].is_wild = v_and_not(found[g].is_flat, is_wild[g]);
  }
}

/* ---- x = scale * (code - half) ---- */

/* Try i has i - 9 tenths of a level more than half; one that does not count makes them even. */
#define SYMMETRIC_TRIES 19
#define SYMMETRIC_PLAIN 9

typedef struct {
  vec_f32 inverse[SYMMETRIC_TRIES + 1], sum_xl[SYMMETRIC_TRIES + 1], sum_l2[SYMMETRIC_TRIES + 1];
} symmetric_tries;

typedef struct {
  vec_f32 scale, inverse; /* codes are those of x * inverse + half */
  vec is_zero;            /* then all codes are 0 */
} symmetric_found;

/* The first of those with the largest magnitude. */
AMN_FORCE_INLINE vec_f32 extreme_lanes(int n, const vec_f32 *x) {
  vec_f32 extreme = v_set_f32(0.0f);
  for (int i = 0; i < n; i++)
    extreme = choose_f32(v_greater_f32(magnitude_f32(x[i]), magnitude_f32(extreme)), x[i], extreme);
  return extreme;
}

/* The sums of some tries, two at a time: what one waits for, the other does. No level of tries
 * before 4 is beyond -half and half - 1, and none of those before 14 is below -half. */
AMN_FORCE_INLINE void symmetric_sums(int n, int half, const search_lanes *lanes,
                                     const vec_f32 *weighed, int from, int to,
                                     symmetric_tries *tries) {
  const vec_f32 unit = v_set_f32(NEAREST_INT), most = v_set_f32(NEAREST_INT + (float)(half - 1));
  const vec_f32 least = v_set_f32(NEAREST_INT - (float)half);
  for (int k = from; k < to; k += 2) {
    const vec_f32 inverse[2] = {tries->inverse[k], tries->inverse[k + 1]};
    vec_f32 xl[2] = {v_set_f32(0.0f), v_set_f32(0.0f)}, l2[2] = {xl[0], xl[0]};
    for (int i = 0; i < n; i++)
      for (int t = 0; t < 2; t++) {
        vec_f32 counted = v_add_f32(v_mul_f32(inverse[t], lanes->x[i]), unit);
        if (from >= 4) counted = v_min_f32(counted, most);
        if (from >= 14) counted = v_max_f32(counted, least);
        const vec_f32 level = v_sub_f32(counted, unit);
        xl[t] = v_add_f32(xl[t], v_mul_f32(weighed[i], level));
        l2[t] = v_add_f32(l2[t], v_mul_f32(v_mul_f32(lanes->weight[i], level), level));
      }
    for (int t = 0; t < 2; t++) {
      tries->sum_xl[k + t] = xl[t];
      tries->sum_l2[k + t] = l2[t];
    }
  }
}

/* What the tries come to, in order, the plain one first. */
AMN_FORCE_INLINE symmetric_found best_symmetric(const symmetric_tries *tries, vec_f32 extreme) {
  const vec_f32 zero = v_set_f32(0.0f), *sum_xl = tries->sum_xl, *sum_l2 = tries->sum_l2;
  const vec is_none = v_equal_u32(v_shl_u32(v_bits_f32(sum_l2[SYMMETRIC_PLAIN]), 1), v_zero());
  const vec_f32 first = v_div_f32(sum_xl[SYMMETRIC_PLAIN], sum_l2[SYMMETRIC_PLAIN]);
  vec_f32 scale = choose_f32(is_none, zero, first), inverse = tries->inverse[SYMMETRIC_PLAIN];
  vec_f32 best = v_mul_f32(scale, sum_xl[SYMMETRIC_PLAIN]);
  for (int k = 0; k < SYMMETRIC_TRIES; k++) {
    if (k == SYMMETRIC_PLAIN) continue;
    const vec_f32 xl = sum_xl[k], l2 = sum_l2[k];
    const vec is_more = v_greater_f32(v_mul_f32(xl, xl), v_mul_f32(best, l2));
    const vec is_better = v_and(is_more, v_greater_f32(l2, zero));
    scale = choose_f32(is_better, v_div_f32(xl, l2), scale);
    best = choose_f32(is_better, v_mul_f32(scale, xl), best);
    inverse = choose_f32(is_better, tries->inverse[k], inverse);
  }
  const vec is_zero = v_greater_f32(v_set_f32(SEARCH_NONE), magnitude_f32(extreme));
  scale = v_f32_from_bits(v_and_not(is_zero, v_bits_f32(scale)));
  return (symmetric_found){scale, inverse, is_zero};
}

/* make_qx_quants: all sums first, as no try hangs on another. */
AMN_FORCE_INLINE symmetric_found search_symmetric_lanes(int n, int half,
                                                        const search_lanes *lanes) {
  const vec_f32 extreme = extreme_lanes(n, lanes->x);
  vec_f32 weighed[SEARCH_LANES_MAX];
  symmetric_tries tries;
  for (int i = 0; i < n; i++) weighed[i] = v_mul_f32(lanes->weight[i], lanes->x[i]);
  for (int k = 0; k <= SYMMETRIC_TRIES; k++) {
    const float levels = -((float)half + 0.1f * (float)(k - SYMMETRIC_PLAIN));
    tries.inverse[k] = v_div_f32(v_set_f32(levels), extreme);
  }
  symmetric_sums(n, half, lanes, weighed, 0, 4, &tries);
  symmetric_sums(n, half, lanes, weighed, 4, 14, &tries);
  symmetric_sums(n, half, lanes, weighed, 14, SYMMETRIC_TRIES, &tries);
  return best_symmetric(&tries, extreme);
}

/* ---- x = scale * code, none below 0 ---- */

/* make_qp_quants: nine scales about the one that gives the largest the level `largest`, then the
 * codes one by one. Codes wrap around below 0. */
AMN_FORCE_INLINE vec_f32 search_positive_lanes(int n, int largest, const vec_f32 *x,
                                               const vec_f32 *weight, vec *codes) {
  const vec_f32 zero = v_set_f32(0.0f), one = v_set_f32(1.0f);
  const vec most_code = v_set_u32((uint32_t)largest), byte = v_set_u32(255);
  vec_f32 most = zero;
  for (int i = 0; i < n; i++) most = v_max_f32(most, x[i]);
  const vec is_zero = v_greater_f32(v_set_f32(SEARCH_NONE), most);
  vec_f32 inverse = v_div_f32(v_set_f32((float)largest), most), best = zero;
  vec_f32 scale = v_div_f32(one, inverse);
  for (int i = 0; i < n; i++) {
    const vec level = v_and(nearest_s32(v_mul_f32(inverse, x[i])), byte);
    const vec_f32 off = v_sub_f32(x[i], v_mul_f32(scale, v_f32_from_s32(level)));
    best = v_add_f32(best, v_mul_f32(v_mul_f32(weight[i], off), off));
  }
  for (int k = -4; k <= 4; k++) {
    if (k == 0) continue;
    const vec_f32 trial = v_div_f32(v_set_f32(0.1f * (float)k + (float)largest), most);
    vec_f32 error = zero;
    scale = v_div_f32(one, trial);
    for (int i = 0; i < n; i++) {
      const vec level = v_min_s32(nearest_s32(v_mul_f32(trial, x[i])), most_code);
      const vec_f32 off = v_sub_f32(x[i], v_mul_f32(scale, v_f32_from_s32(level)));
      error = v_add_f32(error, v_mul_f32(v_mul_f32(weight[i], off), off));
    }
    const vec is_better = v_greater_f32(best, error);
    best = choose_f32(is_better, error, best);
    inverse = choose_f32(is_better, trial, inverse);
  }
  vec_f32 sum_xl = zero, sum_l2 = zero, weighed[SEARCH_LANES_MAX];
  for (int i = 0; i < n; i++) {
    const vec level = v_min_s32(nearest_s32(v_mul_f32(inverse, x[i])), most_code);
    const vec_f32 l = v_f32_from_s32(level);
    weighed[i] = v_mul_f32(weight[i], x[i]);
    codes[i] = v_and(level, byte);
    sum_xl = v_add_f32(sum_xl, v_mul_f32(weighed[i], l));
    sum_l2 = v_add_f32(sum_l2, v_mul_f32(v_mul_f32(weight[i], l), l));
  }
  for (int pass = 0; pass < 5; pass++) {
    vec changed = v_zero();
    for (int i = 0; i < n; i++) {
      const vec_f32 old = v_f32_from_s32(codes[i]);
      vec_f32 xl = v_sub_f32(sum_xl, v_mul_f32(weighed[i], old));
      vec_f32 l2 = v_sub_f32(sum_l2, v_mul_f32(v_mul_f32(weight[i], old), old));
      const vec may = v_and(v_greater_f32(xl, zero), v_greater_f32(l2, zero));
      const vec level = v_min_s32(nearest_s32(v_div_f32(v_mul_f32(x[i], l2), xl)), most_code);
      const vec_f32 l = v_f32_from_s32(level);
      xl = v_add_f32(xl, v_mul_f32(weighed[i], l));
      l2 = v_add_f32(l2, v_mul_f32(v_mul_f32(weight[i], l), l));
      const vec gains = v_greater_f32(v_mul_f32(v_mul_f32(xl, xl), sum_l2),
                                      v_mul_f32(v_mul_f32(sum_xl, sum_xl), l2));
      const vec is_better = v_and_not(v_equal_u32(level, codes[i]), v_and(may, gains));
      codes[i] = v_select(is_better, v_and(level, byte), codes[i]);
      sum_xl = choose_f32(is_better, xl, sum_xl);
      sum_l2 = choose_f32(is_better, l2, sum_l2);
      changed = v_or(changed, is_better);
    }
    if (!v_any(changed)) break;
  }
  for (int i = 0; i < n; i++) codes[i] = v_and_not(is_zero, codes[i]);
  const vec is_none = v_or(is_zero, v_xor(v_greater_f32(sum_l2, zero), v_set_u8(255)));
  return v_f32_from_bits(v_and_not(is_none, v_bits_f32(v_div_f32(sum_xl, sum_l2))));
}
