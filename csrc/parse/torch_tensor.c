/* One tensor in the pickle of a torch file, as torch.save spells it, with its name or without:
 *
 *   name
 *   rebuild ( ( 'storage' class key location n_elements ) BINPERSID
 *             offset sizes strides requires_grad hooks() ) REDUCE
 *
 * Each part is memoised under the next index, except empty tuples and numbers; the function, the
 * word, the class, the location and the class of the hooks are fetched from the memo once they are
 * there. Anything else is left to the machine that runs a pickle opcode by opcode. */
#include "parse.h"

#include <string.h>

#define LONGEST AMN_TORCH_LONGEST
#define REBUILD "torch._utils\n_rebuild_tensor_v2\n"
#define HOOKS "collections\nOrderedDict\n"

typedef struct {
  const uint8_t *at, *end;
  const uint16_t *costs;
  uint64_t first, next; /* indices of the memo: of the first part, of the next one */
  amn_torch_tensor *tensor;
} reader;

int amn_torch_operand_bytes(uint8_t opcode) {
  static const uint8_t one_more[256] = {
#define OPCODE(NAME, code, operand_bytes, runs) [code] = runs ? operand_bytes + 1 : 0,
#include "torch_opcodes.def"
  };
  return one_more[opcode] - 1;
}

static int is_next(const reader *r, uint8_t opcode) {
  return r->at < r->end && *r->at == opcode;
}

static int take(reader *r, uint8_t opcode) {
  if (!is_next(r, opcode)) return 0;
  r->at++;
  r->tensor->cost += r->costs[opcode];
  return 1;
}

static int take_number(reader *r, int n_bytes, uint64_t *value) {
  if (r->end - r->at < n_bytes) return 0;
  *value = 0;
  for (int i = 0; i < n_bytes; i++) *value |= (uint64_t)r->at[i] << (8 * i);
  r->at += n_bytes;
  return 1;
}

/* CPython takes the short opcode for as long as it can. */
static int take_put(reader *r, amn_torch_part part) {
  uint64_t index;
  int is_short = r->next < 256;
  if (!take(r, is_short ? AMN_OP_BINPUT : AMN_OP_LONG_BINPUT) ||
      !take_number(r, is_short ? 1 : 4, &index) || index != r->next)
    return 0;
  r->tensor->memoised |= 1u << part;
  r->tensor->memo[part] = (uint32_t)index;
  r->next++;
  return 1;
}

static int take_get(reader *r, amn_torch_part part) {
  uint64_t index;
  if (!take(r, AMN_OP_BINGET) || !take_number(r, 1, &index) || index >= r->first) return 0;
  r->tensor->memo[part] = (uint32_t)index;
  return 1;
}

static int take_line(reader *r, amn_bytes *line) {
  uint64_t left = (uint64_t)(r->end - r->at);
  const uint8_t *stop = memchr(r->at, '\n', left < LONGEST ? left : LONGEST);
  if (stop == NULL) return 0;
  line->data = r->at;
  line->n_bytes = (uint64_t)(stop - r->at);
  r->tensor->cost += line->n_bytes;
  r->at = stop + 1;
  return 1;
}

static int is_ascii(amn_bytes text) {
  uint8_t all = 0;
  for (uint64_t i = 0; i < text.n_bytes; i++) all |= text.data[i];
  return all < 0x80;
}

static int take_text(reader *r, amn_bytes *text, amn_torch_part part) {
  if (!take(r, AMN_OP_BINUNICODE) || !take_number(r, 4, &text->n_bytes)) return 0;
  if (text->n_bytes > LONGEST || text->n_bytes > (uint64_t)(r->end - r->at)) return 0;
  text->data = r->at;
  r->at += text->n_bytes;
  r->tensor->cost += text->n_bytes;
  return is_ascii(*text) && take_put(r, part);
}

static int take_word(reader *r, const char *word, amn_torch_part part) {
  amn_bytes text;
  if (is_next(r, AMN_OP_BINGET)) return take_get(r, part);
  return take_text(r, &text, part) && text.n_bytes == strlen(word) &&
         memcmp(text.data, word, text.n_bytes) == 0;
}

/* A global whose module and name are `lines`. */
static int take_global(reader *r, const char *lines, amn_torch_part part) {
  size_t length = strlen(lines);
  if (is_next(r, AMN_OP_BINGET)) return take_get(r, part);
  if (!take(r, AMN_OP_GLOBAL) || (size_t)(r->end - r->at) < length ||
      memcmp(r->at, lines, length) != 0)
    return 0;
  r->at += length;
  r->tensor->cost += length - 2;
  return take_put(r, part);
}

static int take_kind(reader *r, amn_bytes *name) {
  amn_bytes module;
  if (is_next(r, AMN_OP_BINGET)) return take_get(r, AMN_PART_KIND);
  return take(r, AMN_OP_GLOBAL) && take_line(r, &module) && module.n_bytes == 5 &&
         memcmp(module.data, "torch", 5) == 0 && take_line(r, name) && is_ascii(*name) &&
         take_put(r, AMN_PART_KIND);
}

static int take_location(reader *r, amn_bytes *name) {
  if (is_next(r, AMN_OP_BINGET)) return take_get(r, AMN_PART_LOCATION);
  return take_text(r, name, AMN_PART_LOCATION);
}

static int take_integer(reader *r, uint64_t *value) {
  if (take(r, AMN_OP_BININT1)) return take_number(r, 1, value);
  if (take(r, AMN_OP_BININT2)) return take_number(r, 2, value);
  return take(r, AMN_OP_BININT) && take_number(r, 4, value) && *value <= INT32_MAX;
}

static int take_integers(reader *r, uint64_t *values, int *count, amn_torch_part part) {
  static const uint8_t tuples[] = {AMN_OP_TUPLE1, AMN_OP_TUPLE2, AMN_OP_TUPLE3};
  int marked = take(r, AMN_OP_MARK);
  *count = 0;
  while (*count < AMN_TORCH_DIMS && take_integer(r, &values[*count])) ++*count;
  if (marked) return take(r, AMN_OP_TUPLE) && take_put(r, part);
  if (*count == 0) return take(r, AMN_OP_EMPTY_TUPLE);
  return *count <= 3 && take(r, tuples[*count - 1]) && take_put(r, part);
}

/* A name that is written out; other keys are fetched from the memo, by an opcode of their own. */
static int take_name(reader *r, amn_bytes *name) {
  return !is_next(r, AMN_OP_BINUNICODE) || take_text(r, name, AMN_PART_NAME);
}

static int take_flag(reader *r, int *flag) {
  *flag = take(r, AMN_OP_NEWTRUE);
  return *flag || take(r, AMN_OP_NEWFALSE);
}

int amn_torch_tensor_at(amn_bytes pickle, uint64_t pos, uint64_t n_memo, const uint16_t *costs,
                        amn_torch_tensor *t) {
  int n_strides;
  if (pos >= pickle.n_bytes) return 0;
  reader r = {pickle.data + pos, pickle.data + pickle.n_bytes, costs, n_memo, n_memo, t};
  t->memoised = 0;
  t->cost = 0;
  if (!take_name(&r, &t->name) || !take_global(&r, REBUILD, AMN_PART_REBUILD) ||
      !take(&r, AMN_OP_MARK) || !take(&r, AMN_OP_MARK) ||
      !take_word(&r, "storage", AMN_PART_WORD) || !take_kind(&r, &t->kind_name) ||
      !take_text(&r, &t->key, AMN_PART_KEY) || !take_location(&r, &t->location_name) ||
      !take_integer(&r, &t->n_elements) || !take(&r, AMN_OP_TUPLE) ||
      !take_put(&r, AMN_PART_SAVED) || !take(&r, AMN_OP_BINPERSID) ||
      !take_integer(&r, &t->offset) || !take_integers(&r, t->sizes, &t->n_dims, AMN_PART_SIZES) ||
      !take_integers(&r, t->strides, &n_strides, AMN_PART_STRIDES) || n_strides != t->n_dims ||
      !take_flag(&r, &t->requires_grad) || !take_global(&r, HOOKS, AMN_PART_ORDERED) ||
      !take(&r, AMN_OP_EMPTY_TUPLE) || !take(&r, AMN_OP_REDUCE) || !take_put(&r, AMN_PART_HOOKS) ||
      !take(&r, AMN_OP_TUPLE) || !take_put(&r, AMN_PART_ARGS) || !take(&r, AMN_OP_REDUCE) ||
      !take_put(&r, AMN_PART_TENSOR))
    return 0;
  t->end = (uint64_t)(r.at - pickle.data);
  return 1;
}
