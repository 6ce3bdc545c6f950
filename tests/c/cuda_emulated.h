/* As much of CUDA as exllamav2's kernels of weights need, on a CPU: emulated, and so slow.
 *
 * Half floats are rounded to nearest, ties to even, after each operation, as by a GPU. Of a block,
 * each thread runs by itself: up to the barrier, and when all have reached it once more, from its
 * start and past it. What a kernel does before its barrier it may so do twice. */
#ifndef CUDA_EMULATED_H
#define CUDA_EMULATED_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static

/* A class, as CUDA's is: no number becomes one by itself. */
struct half {
  _Float16 value;
};
struct half2 {
  half x, y;
};
struct int4 {
  int x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() {}
  dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace at {
class Tensor;
}
using std::max;
using std::min;

inline half __float2half_rn(float value) {
  return half{(_Float16)value};
}
inline half __int2half_rn(int value) {
  return half{(_Float16)(double)value};
}
inline float __half2float(half a) {
  return (float)a.value;
}
/* Products and sums of two half floats are exact in double, and so is what is added to a product
 * here: codes, powers of two and what takes them off. */
inline half emulated_half(double value) {
  return half{(_Float16)value};
}
inline half __hmul(half a, half b) {
  return emulated_half((double)a.value * (double)b.value);
}
inline half __hadd(half a, half b) {
  return emulated_half((double)a.value + (double)b.value);
}
inline half __hsub(half a, half b) {
  return emulated_half((double)a.value - (double)b.value);
}
inline half __hfma(half a, half b, half c) {
  return emulated_half((double)a.value * (double)b.value + (double)c.value);
}
inline half2 __halves2half2(half x, half y) {
  return half2{x, y};
}
inline half2 __half2half2(half x) {
  return half2{x, x};
}
inline half __low2half(half2 a) {
  return a.x;
}
inline half __high2half(half2 a) {
  return a.y;
}
inline half2 __hmul2(half2 a, half2 b) {
  return half2{__hmul(a.x, b.x), __hmul(a.y, b.y)};
}
inline half2 __hadd2(half2 a, half2 b) {
  return half2{__hadd(a.x, b.x), __hadd(a.y, b.y)};
}
inline half2 __hfma2(half2 a, half2 b, half2 c) {
  return half2{__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
inline uint32_t __funnelshift_rc(uint32_t low, uint32_t high, uint32_t shift) {
  return (uint32_t)(((uint64_t)high << 32 | low) >> min(shift, 32u));
}

typedef void *cudaStream_t;
typedef int cudaError_t;
enum { cudaSuccess, cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToDevice };

inline cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
inline const char *cudaGetErrorString(cudaError_t) {
  return "";
}
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t n, int) {
  memcpy(to, from, n);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, int, cudaStream_t = 0) {
  return cudaMemcpy(to, from, n, 0);
}
template <typename T>
cudaError_t cudaMalloc(T **to, size_t n) {
  *to = (T *)malloc(n);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void *at) {
  free(at);
  return cudaSuccess;
}

static dim3 gridDim, blockDim, blockIdx, threadIdx;

struct barrier {};
static bool is_past_barrier;

inline void __syncthreads() {
  if (!is_past_barrier) throw barrier();
}

/* kernel<<<grid, block>>>(...) */
template <typename Kernel>
void emulated_launch(dim3 grid, dim3 block, Kernel kernel) {
  gridDim = grid, blockDim = block;
  for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) {
        bool has_barrier = false;
        for (is_past_barrier = false;; is_past_barrier = true) {
          for (threadIdx.z = 0; threadIdx.z < block.z; threadIdx.z++)
            for (threadIdx.y = 0; threadIdx.y < block.y; threadIdx.y++)
              for (threadIdx.x = 0; threadIdx.x < block.x; threadIdx.x++) {
                try {
                  kernel();
                } catch (const barrier &) {
                  has_barrier = true;
                }
              }
          if (!has_barrier || is_past_barrier) break;
        }
      }
}

#endif /* CUDA_EMULATED_H */
