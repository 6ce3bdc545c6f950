/* What exllamav3's kernels of weights need of CUDA beyond cuda_emulated.h: threads that meet, and
 * that hand values to each other. Those of a block are fibers; each goes on from one meeting to the
 * next, in turn. */
#ifndef CUDA_WARPS_H
#define CUDA_WARPS_H

#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "cuda_emulated.h"

#define __launch_bounds__(n)
#define __align__(n) alignas(n)
#define WARP 32

typedef half __half;
struct float4 {
  float x, y, z, w;
};

inline half __ushort_as_half(uint16_t bits) {
  half result;
  memcpy(&result, &bits, sizeof result);
  return result;
}
inline float __low2float(half2 a) {
  return __half2float(a.x);
}
inline float __high2float(half2 a) {
  return __half2float(a.y);
}
inline half2 __lows2half2(half2 a, half2 b) {
  return half2{a.x, b.x};
}
inline half2 __highs2half2(half2 a, half2 b) {
  return half2{a.y, b.y};
}
inline half2 __floats2half2_rn(float x, float y) {
  return half2{__float2half_rn(x), __float2half_rn(y)};
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return (uint32_t)(((uint64_t)high << 32 | low) >> (shift & 31));
}

/* Entered by its context, then by jumps, which ask nothing of the system. */
struct fiber {
  ucontext_t context;
  jmp_buf place;
  std::unique_ptr<char[]> stack{new char[1 << 16]};
  bool is_new, is_done;
};
static std::vector<fiber> fibers;
static jmp_buf scheduler;
static std::function<void()> kernel_body;
static std::vector<uint64_t> handed;

inline void meet() {
  if (!_setjmp(fibers[threadIdx.x].place)) _longjmp(scheduler, 1);
}
#define __syncthreads() meet()
#define __syncwarp() meet()
#define __activemask() ~0u

/* Nobody hands out its next value before all have this one. */
template <typename T>
T value_of_lane(T value, unsigned lane) {
  static_assert(sizeof value <= sizeof handed[0]);
  memcpy(&handed[threadIdx.x], &value, sizeof value);
  meet();
  memcpy(&value, &handed[threadIdx.x / WARP * WARP + lane], sizeof value);
  meet();
  return value;
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, unsigned mask) {
  return value_of_lane(value, (threadIdx.x % WARP) ^ mask);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned n, int) {
  const unsigned lane = threadIdx.x % WARP;
  return value_of_lane(value, lane + n < WARP ? lane + n : lane);
}

inline void run_fiber() {
  kernel_body();
  fibers[threadIdx.x].is_done = true;
  _longjmp(scheduler, 1);
}

inline void go_on(fiber &one) {
  if (_setjmp(scheduler)) return;
  if (!one.is_new) _longjmp(one.place, 1);
  one.is_new = false;
  setcontext(&one.context);
}

/* kernel<<<grid, n_threads>>>(...) */
inline void launch_warps(dim3 grid, unsigned n_threads, std::function<void()> kernel) {
  kernel_body = kernel, gridDim = grid;
  fibers = std::vector<fiber>(n_threads);
  handed.resize(n_threads);
  for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) {
      for (fiber &one : fibers) {
        one.is_new = true, one.is_done = false;
        getcontext(&one.context);
        one.context.uc_stack.ss_sp = one.stack.get();
        one.context.uc_stack.ss_size = 1 << 16;
        makecontext(&one.context, run_fiber, 0);
      }
      while (!fibers.back().is_done) /* all end after as many meetings */
        for (threadIdx.x = 0; threadIdx.x < n_threads; threadIdx.x++) go_on(fibers[threadIdx.x]);
    }
}

#endif /* CUDA_WARPS_H */
