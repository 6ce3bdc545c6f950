/* One call of a kernel at the best level, so many times: count_instructions FAMILY NAME OUT TIMES.
 * tools/count_instructions.py takes the difference of two such runs. The numbers are usual ones:
 * every byte of them is the same. */
static int kernels_test(void);
#define main kernels_test
#include "../tests/c/kernels_test.c"
#undef main

#define USUAL 0x2c /* as a half float and as float32 a normal number, as are its multiples */

static const struct {
  const char *family;
  call *run;
  const char *with;
} families[] = {
    {"scaled", scaled, "F32"},  {"absmax", absmax, "F32"},   {"convert", widened, NULL},
    {"block", block, NULL},     {"packed", in_order, "F16"}, {"act-order", act_order, "F16"},
    {"trellis", trellis, NULL},
};

static const amn_kernel *row_of(const char *family, const char *name) {
  const amn_kernel *row;
  for (int i = 0; name != NULL && (row = amn_kernel_at(i)) != NULL; i++)
    if (strcmp(row->family, family) == 0 && strcmp(row->name, name) == 0) return row;
  return NULL;
}

static int best_level(void) {
  int level = 0;
  const char *most = getenv("LEVEL");
  while (amn_level_name(level + 1) != NULL && amn_level_supported(level + 1) &&
         (most == NULL || strcmp(amn_level_name(level), most) != 0))
    level++;
  return level;
}

int main(int argc, char **argv) {
  if (argc != 5) return kernels_test();
  memset(src_room, USUAL, sizeof src_room);
  memset(scales_room, USUAL, sizeof scales_room);
  memset(zeros_room, USUAL, sizeof zeros_room);
  for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
    if (strcmp(families[i].family, argv[1]) != 0) continue;
    const int is_act_order = families[i].run == act_order;
    const amn_kernel *of = row_of(is_act_order ? "packed" : argv[1], argv[2]);
    const amn_kernel *out = row_of("output", argv[3]), *with = row_of("convert", families[i].with);
    uint64_t n_overflow;
    for (int times = atoi(argv[4]); of && out && times > 0; times--) {
      amn_buffer dst = {outs[0], N * (uint64_t)out->item_bytes, 0};
      if (families[i].run(best_level(), of, out, with, dst, &n_overflow) != AMN_OK) return 1;
    }
    return of && out ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  return EXIT_FAILURE;
}
