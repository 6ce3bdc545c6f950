/* What the tests call of exllamav2's kernels; its files lie beside, with their launches rewritten. */
#include "pack_tensor.cpp"
#undef BLOCKSIZE_X
#undef BLOCKSIZE_Y
#include "q_matrix.cpp"

/* Of its caches, which no weight needs. */
void array_q_to_fp16_kv_cuda(cudaStream_t, const unsigned char *, const half *, half *,
                             const unsigned char *, const half *, half *, int, int, int, int, int,
                             int) {}
void array_fp16_to_q_kv_cuda(cudaStream_t, const half *, unsigned char *, half *, const half *,
                             unsigned char *, half *, int, int, int, int, int, int) {}

extern "C" {
void exl2_pack_rows_4(const uint16_t *input, uint32_t *output, int rows, int columns) {
  pack_rows_4_cuda(NULL, input, output, rows, columns);
}

void exl2_pack_columns(const uint16_t *input, uint32_t *output, int in_rows, int out_rows,
                       int columns, int bits) {
  pack_columns_cuda(NULL, input, output, in_rows, out_rows, columns, bits);
}

/* As ext_qmatrix.cpp makes a QMatrix, whose constructor shuffles the words where they lie. */
void exl2_reconstruct(int height, int width, int groups, uint32_t *q_weight, uint16_t *q_perm,
                      uint16_t *q_invperm, uint32_t *q_scale, uint16_t *q_scale_max,
                      uint16_t *q_groups, uint16_t *q_group_map, uint16_t *out) {
  QMatrix matrix(NULL, 0, height, width, groups, q_weight, q_perm, q_invperm, q_scale,
                 (half *)q_scale_max, q_groups, q_group_map, NULL, NULL, NULL, NULL, NULL, 0);
  matrix.reconstruct(NULL, (half *)out);
}
}
