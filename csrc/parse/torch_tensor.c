/* One tensor in the pickle of a torch file, as torch.save spells it, with its name or without:
 *
 *   name
 *   rebuild ( ( 'storage' class key location n_elements ) BINPERSID
 *             offset sizes strides requires_grad hooks() ) REDUCE
 *
 * Each part is memoised under the next index, but for empty tuples and numbers; the function, the
 * word, the class, the location and the class of the hooks are fetched from the memo once they are
 * there. Whatever else a pickle may say is left to the machine that runs it opcode by opcode. */
#include "parse.h"

#include <string.h>

#define LONGEST AMN_TORCH_LONGEST
#define REBUILD "torch._utils\n_rebuild_tensor_v2\n"
#define HOOKS "collections\nOrderedDict\n"

typedef struct {
  const uint8_t *at, *end;
  const uint16_t *costs;
  uint64_t first, next; /* indices of the memo: of the first part, of the next one */
  uint64_t cost;
  uint32_t memoised;
  int n_parts; /* that could have been memoised so far */
} reader;

static int take(reader *r, uint8_t opcode) {
  if (r->at == r->end || *r->at != opcode) return 0;
  r->at++;
  r->cost += r->costs[opcode];
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
static int take_put(reader *r) {
  uint64_t index;
  int is_short = r->next < 256;
  if (!take(r, is_short ? 'q' : 'r') || !take_number(r, is_short ? 1 : 4, &index)) return 0;
  r->memoised |= 1u << r->n_parts++;
  return index == r->next++;
}

static int take_get(reader *r, int *index) {
  uint64_t value;
  if (!take(r, 'h') || !take_number(r, 1, &value) || value >= r->first) return 0;
  *index = (int)value;
  r->n_parts++;
  return 1;
}

static int take_line(reader *r, amn_bytes *line) {
  uint64_t left = (uint64_t)(r->end - r->at);
  const uint8_t *stop = memchr(r->at, '\n', left < LONGEST ? left : LONGEST);
  if (stop == NULL) return 0;
  line->data = r->at;
  line->n_bytes = (uint64_t)(stop - r->at);
  r->cost += line->n_bytes;
  r->at = stop + 1;
  return 1;
}

static int is_ascii(amn_bytes text) {
  uint8_t all = 0;
  for (uint64_t i = 0; i < text.n_bytes; i++) all |= text.data[i];
  return all < 0x80;
}

static int take_text(reader *r, amn_bytes *text) {
  if (!take(r, 'X') || !take_number(r, 4, &text->n_bytes)) return 0;
  if (text->n_bytes > LONGEST || text->n_bytes > (uint64_t)(r->end - r->at)) return 0;
  text->data = r->at;
  r->at += text->n_bytes;
  r->cost += text->n_bytes;
  return is_ascii(*text) && take_put(r);
}

static int take_word(reader *r, const char *word, int *index) {
  amn_bytes text;
  if (r->at < r->end && *r->at == 'h') return take_get(r, index);
  return take_text(r, &text) && text.n_bytes == strlen(word) &&
         memcmp(text.data, word, text.n_bytes) == 0;
}

/* A global whose module and name are `lines`. */
static int take_global(reader *r, const char *lines, int *index) {
  size_t length = strlen(lines);
  if (r->at < r->end && *r->at == 'h') return take_get(r, index);
  if (!take(r, 'c') || (size_t)(r->end - r->at) < length || memcmp(r->at, lines, length) != 0)
    return 0;
  r->at += length;
  r->cost += length - 2;
  return take_put(r);
}

static int take_kind(reader *r, amn_bytes *name, int *index) {
  amn_bytes module;
  if (r->at < r->end && *r->at == 'h') return take_get(r, index);
  return take(r, 'c') && take_line(r, &module) && module.n_bytes == 5 &&
         memcmp(module.data, "torch", 5) == 0 && take_line(r, name) && is_ascii(*name) &&
         take_put(r);
}

static int take_location(reader *r, amn_bytes *name, int *index) {
  if (r->at < r->end && *r->at == 'h') return take_get(r, index);
  return take_text(r, name);
}

static int take_integer(reader *r, uint64_t *value) {
  if (take(r, 'K')) return take_number(r, 1, value);
  if (take(r, 'M')) return take_number(r, 2, value);
  return take(r, 'J') && take_number(r, 4, value) && *value <= INT32_MAX;
}

static int take_integers(reader *r, uint64_t *values, int *count) {
  int marked = take(r, '(');
  *count = 0;
  while (*count < AMN_TORCH_DIMS && take_integer(r, &values[*count])) ++*count;
  if (marked) return take(r, 't') && take_put(r);
  if (*count == 0) {
    r->n_parts++;
    return take(r, ')');
  }
  return *count <= 3 && take(r, (uint8_t)(0x84 + *count)) && take_put(r);
}

/* A name that is written out; other keys are fetched from the memo, by an opcode of their own. */
static int take_name(reader *r, amn_bytes *name) {
  if (r->at < r->end && *r->at == 'X') return take_text(r, name);
  name->data = NULL;
  r->n_parts++;
  return 1;
}

static int take_flag(reader *r, int *flag) {
  *flag = take(r, 0x88);
  return *flag || take(r, 0x89);
}

int amn_torch_tensor_at(amn_bytes pickle, uint64_t pos, uint64_t n_memo, const uint16_t *costs,
                        amn_torch_tensor *t) {
  int n_strides;
  if (pos >= pickle.n_bytes) return 0;
  reader r = {pickle.data + pos, pickle.data + pickle.n_bytes, costs, n_memo, n_memo, 0, 0, 0};
  if (!take_name(&r, &t->name) || !take_global(&r, REBUILD, &t->rebuild) || !take(&r, '(') ||
      !take(&r, '(') || !take_word(&r, "storage", &t->word) ||
      !take_kind(&r, &t->kind_name, &t->kind) || !take_text(&r, &t->key) ||
      !take_location(&r, &t->location_name, &t->location) || !take_integer(&r, &t->n_elements) ||
      !take(&r, 't') || !take_put(&r) || !take(&r, 'Q') || !take_integer(&r, &t->offset) ||
      !take_integers(&r, t->sizes, &t->n_dims) || !take_integers(&r, t->strides, &n_strides) ||
      n_strides != t->n_dims || !take_flag(&r, &t->requires_grad) ||
      !take_global(&r, HOOKS, &t->hooks) || !take(&r, ')') || !take(&r, 'R') || !take_put(&r) ||
      !take(&r, 't') || !take_put(&r) || !take(&r, 'R') || !take_put(&r))
    return 0;
  t->memoised = r.memoised;
  t->cost = r.cost;
  t->end = (uint64_t)(r.at - pickle.data);
  return 1;
}
