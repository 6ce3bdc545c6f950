/* What differs between compilers and machines, so that no other file has to ask. */
#ifndef AMN_PLATFORM_H
#define AMN_PLATFORM_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bit-exactness rests on plain IEEE arithmetic: no fast-math, no excess precision, no fused
 * multiply-add (setup.py passes -ffp-contract=off; MSVC, and Clang as a second lock, by pragma). */
#if defined(__FAST_MATH__)
#error "anamnesis must not be built with -ffast-math: results are bit-exact by contract"
#endif
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "anamnesis needs FLT_EVAL_METHOD == 0: float arithmetic without excess precision"
#endif
#if defined(_MSC_VER) && !defined(__clang__)
#if defined(_M_FP_FAST)
#error "anamnesis must not be built with /fp:fast: results are bit-exact by contract"
#endif
#pragma fp_contract(off)
#elif defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "anamnesis reads little-endian files without swapping: big-endian machines are not supported"
#endif

#if (defined(__x86_64__) && !defined(__ILP32__)) || (defined(_M_X64) && !defined(_M_ARM64EC))
#define AMN_ARCH_X86_64 1
#elif defined(__aarch64__) || defined(_M_ARM64)
#define AMN_ARCH_AARCH64 1
#endif

#if defined(_MSC_VER)
#define AMN_FORCE_INLINE static __forceinline
#else
#define AMN_FORCE_INLINE static inline __attribute__((always_inline))
#endif

/* What is there will be wanted soon, but not at once. */
#if defined(__GNUC__)
#define AMN_PREFETCH(p) __builtin_prefetch(p, 0, 2)
#else
#define AMN_PREFETCH(p) ((void)(p))
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#endif

/* A region of functions compiled for AVX2, for AVX-512, for multiplication without carries, or for
 * aarch64's CRC-32.
 * Include <immintrin.h> before it. Never add fma: without -ffp-contract=off, GCC fuses
 * _mm256_mul_ps with _mm256_add_ps as soon as the target allows it, as AVX-512 does by itself; a
 * test looks through what was compiled. MSVC accepts intrinsics anywhere. */
#define AMN_AVX2 "avx2,f16c"
#define AMN_AVX512 "avx512f,avx512vl,avx512bw,avx512dq,avx512vbmi,f16c"
#define AMN_CLMUL "pclmul"
#define AMN_CLMUL_256 "vpclmulqdq,avx2"
#if defined(__clang__)
#define AMN_CRC "crc"
#else
#define AMN_CRC "+crc"
#endif
#define AMN_PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define AMN_TARGET_BEGIN(target_names) \
  AMN_PRAGMA(clang attribute push(__attribute__((target(target_names))), apply_to = function))
#define AMN_TARGET_END AMN_PRAGMA(clang attribute pop)
#elif defined(__GNUC__)
#define AMN_TARGET_BEGIN(target_names) \
  AMN_PRAGMA(GCC push_options) AMN_PRAGMA(GCC target(target_names))
#define AMN_TARGET_END AMN_PRAGMA(GCC pop_options)
#else
#define AMN_TARGET_BEGIN(target_names)
#define AMN_TARGET_END
#endif

/* Before a loop whose steps compilers would otherwise mix until their registers do not suffice. */
#if defined(__clang__)
#define AMN_KEEP_LOOP AMN_PRAGMA(clang loop unroll(disable))
#elif defined(__GNUC__)
#define AMN_KEEP_LOOP AMN_PRAGMA(GCC unroll 1)
#else
#define AMN_KEEP_LOOP
#endif

/* Loads and stores at any address. */
static inline uint16_t amn_load_u16(const uint8_t *p) {
  uint16_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

static inline uint32_t amn_load_u32(const uint8_t *p) {
  uint32_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

static inline void amn_store_u16(uint8_t *p, uint16_t value) {
  memcpy(p, &value, sizeof value);
}

static inline void amn_store_u32(uint8_t *p, uint32_t value) {
  memcpy(p, &value, sizeof value);
}

static inline void amn_store_u64(uint8_t *p, uint64_t value) {
  memcpy(p, &value, sizeof value);
}

static inline uint32_t amn_f32_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float amn_f32_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Which bit is the lowest that is set; one must be. */
static inline int amn_lowest_bit(uint32_t bits) {
#if defined(_MSC_VER) && !defined(__clang__)
  unsigned long at;
  _BitScanForward(&at, bits);
  return (int)at;
#else
  return __builtin_ctz(bits);
#endif
}

/* The thread's floating-point mode. A host may have set flush-to-zero or another rounding (torch
 * does so on request, and any library built with -ffast-math for the thread that loads it); the
 * results must not depend on that. Kernels therefore run in the IEEE default mode, between these
 * two. */
#if defined(AMN_ARCH_X86_64)
#include <xmmintrin.h>
#define AMN_MXCSR_DEFAULT 0x1f80u /* round to nearest, no FTZ, no DAZ, all exceptions masked */
static inline uint64_t amn_fp_mode_enter(void) {
  uint64_t saved = _mm_getcsr();
  _mm_setcsr(AMN_MXCSR_DEFAULT);
  return saved;
}
static inline void amn_fp_mode_leave(uint64_t saved) {
  _mm_setcsr((unsigned int)saved);
}
#elif defined(AMN_ARCH_AARCH64) && defined(__GNUC__)
static inline void amn_fp_mode_leave(uint64_t saved) {
  __asm__ volatile("msr fpcr, %0" : : "r"(saved) : "memory");
}
static inline uint64_t amn_fp_mode_enter(void) {
  uint64_t saved;
  __asm__ volatile("mrs %0, fpcr" : "=r"(saved) : : "memory");
  amn_fp_mode_leave(0);
  return saved;
}
#elif defined(AMN_ARCH_AARCH64) && defined(_MSC_VER)
#include <intrin.h>
static inline uint64_t amn_fp_mode_enter(void) {
  uint64_t saved = (uint64_t)_ReadStatusReg(ARM64_FPCR);
  _WriteStatusReg(ARM64_FPCR, 0);
  return saved;
}
static inline void amn_fp_mode_leave(uint64_t saved) {
  _WriteStatusReg(ARM64_FPCR, (__int64)saved);
}
#else
static inline uint64_t amn_fp_mode_enter(void) {
  return 0;
}
static inline void amn_fp_mode_leave(uint64_t saved) {
  (void)saved;
}
#endif

#endif /* AMN_PLATFORM_H */
