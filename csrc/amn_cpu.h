/* What the CPU and the operating system offer. Slow (cpuid): ask once. */
#ifndef AMN_CPU_H
#define AMN_CPU_H

#include "amn_platform.h"

#if defined(AMN_ARCH_X86_64)

#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif

#define AMN_CPUID1_ECX_PCLMULQDQ (1u << 1)
#define AMN_CPUID1_ECX_OSXSAVE (1u << 27)
#define AMN_CPUID1_ECX_AVX (1u << 28)
#define AMN_CPUID1_ECX_F16C (1u << 29)
#define AMN_CPUID7_EBX_AVX2 (1u << 5)
#define AMN_CPUID7_ECX_VPCLMULQDQ (1u << 10)
#define AMN_XCR0_SSE_AND_YMM 6u

typedef struct {
  uint32_t eax, ebx, ecx, edx;
} amn_cpuid_regs;

static inline amn_cpuid_regs amn_cpuid(uint32_t leaf) {
  amn_cpuid_regs regs = {0, 0, 0, 0};
#if defined(_MSC_VER)
  int out[4];
  __cpuid(out, 0);
  if ((uint32_t)out[0] < leaf) return regs;
  __cpuidex(out, (int)leaf, 0);
  regs.eax = (uint32_t)out[0];
  regs.ebx = (uint32_t)out[1];
  regs.ecx = (uint32_t)out[2];
  regs.edx = (uint32_t)out[3];
#else
  if (!__get_cpuid_count(leaf, 0, &regs.eax, &regs.ebx, &regs.ecx, &regs.edx)) {
    amn_cpuid_regs none = {0, 0, 0, 0};
    return none;
  }
#endif
  return regs;
}

/* Which register files the operating system saves on a task switch: without the YMM bit, AVX
 * state would be lost silently, even if cpuid lists it. Only legal after the OSXSAVE bit was seen.
 */
static inline uint32_t amn_xcr0(void) {
#if defined(_MSC_VER)
  return (uint32_t)_xgetbv(0);
#else
  uint32_t eax, edx;
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax;
#endif
}

static inline int amn_cpu_has_avx2_f16c(void) {
  const uint32_t wanted = AMN_CPUID1_ECX_OSXSAVE | AMN_CPUID1_ECX_AVX | AMN_CPUID1_ECX_F16C;
  if ((amn_cpuid(1).ecx & wanted) != wanted) return 0;
  if ((amn_xcr0() & AMN_XCR0_SSE_AND_YMM) != AMN_XCR0_SSE_AND_YMM) return 0;
  return (amn_cpuid(7).ebx & AMN_CPUID7_EBX_AVX2) != 0;
}

static inline int amn_cpu_has_pclmul(void) {
  return (amn_cpuid(1).ecx & AMN_CPUID1_ECX_PCLMULQDQ) != 0;
}

static inline int amn_cpu_has_vpclmul(void) {
  return amn_cpu_has_avx2_f16c() && (amn_cpuid(7).ecx & AMN_CPUID7_ECX_VPCLMULQDQ) != 0;
}

#endif /* NEON is aarch64's baseline */

#endif /* AMN_CPU_H */
