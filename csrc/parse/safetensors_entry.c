/* One tensor's entry in the JSON header of a safetensors file, as all known writers spell it:
 *
 *   "name": {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]}
 *
 * White space may stand wherever JSON allows it. Whatever else JSON allows (escapes, another order,
 * further keys), and anything it does not, is left to a reader that can say what is wrong. */
#include "parse.h"

#include <string.h>

typedef struct {
  const uint8_t *at, *end;
} text;

static void skip_space(text *t) {
  while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\n' || *t->at == '\r'))
    t->at++;
}

static int take(text *t, uint8_t mark) {
  skip_space(t);
  if (t->at == t->end || *t->at != mark) return 0;
  t->at++;
  return 1;
}

static int take_string(text *t, amn_bytes *string) {
  if (!take(t, '"')) return 0;
  string->data = t->at;
  while (t->at < t->end && *t->at != '"') {
    if (*t->at == '\\' || *t->at < 0x20) return 0;
    t->at++;
  }
  string->n_bytes = (uint64_t)(t->at - string->data);
  return take(t, '"');
}

static int is(amn_bytes string, const char *word) {
  size_t length = strlen(word);
  return string.n_bytes == length && memcmp(string.data, word, length) == 0;
}

static int take_key(text *t, const char *word) {
  amn_bytes key;
  return take_string(t, &key) && is(key, word) && take(t, ':');
}

static int take_integer(text *t, uint64_t *value) {
  skip_space(t);
  const uint8_t *start = t->at;
  uint64_t sum = 0;
  for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
    unsigned digit = *t->at - '0';
    if (sum > (UINT64_MAX - digit) / 10) return 0;
    sum = sum * 10 + digit;
  }
  *value = sum;
  return t->at > start && (t->at == start + 1 || *start != '0');
}

static int take_integers(text *t, uint64_t *values, int most, int *count) {
  *count = 0;
  if (!take(t, '[')) return 0;
  if (take(t, ']')) return 1;
  do {
    if (*count == most || !take_integer(t, &values[*count])) return 0;
    ++*count;
  } while (take(t, ','));
  return take(t, ']');
}

int amn_tensor_entry_at(amn_bytes header, uint64_t *pos, amn_tensor_entry *entry) {
  int n_offsets;
  if (*pos >= header.n_bytes) return 0;
  text t = {header.data + *pos, header.data + header.n_bytes};
  if (!take_string(&t, &entry->name) || is(entry->name, "__metadata__") || !take(&t, ':') ||
      !take(&t, '{') || !take_key(&t, "dtype") || !take_string(&t, &entry->dtype) ||
      !take(&t, ',') || !take_key(&t, "shape") ||
      !take_integers(&t, entry->shape, AMN_ENTRY_DIMS, &entry->n_dims) || !take(&t, ',') ||
      !take_key(&t, "data_offsets") || !take_integers(&t, entry->offsets, 2, &n_offsets) ||
      n_offsets != 2 || !take(&t, '}'))
    return 0;
  entry->another = take(&t, ',');
  skip_space(&t);
  *pos = (uint64_t)(t.at - header.data);
  return 1;
}
