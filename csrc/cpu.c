/* What the CPU and the operating system offer. */
#include "kernels.h"

#if defined(AMN_ARCH_X86_64)

#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif

#define CPUID1_ECX_PCLMULQDQ (1u << 1)
#define CPUID1_ECX_OSXSAVE (1u << 27)
#define CPUID1_ECX_AVX (1u << 28)
#define CPUID1_ECX_F16C (1u << 29)
#define CPUID7_EBX_AVX2 (1u << 5)
#define CPUID7_ECX_VPCLMULQDQ (1u << 10)
#define XCR0_SSE_AND_YMM 6u

typedef struct {
  uint32_t eax, ebx, ecx, edx;
} cpuid_regs;

static cpuid_regs cpuid(uint32_t leaf) {
  cpuid_regs regs = {0, 0, 0, 0};
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
    cpuid_regs none = {0, 0, 0, 0};
    return none;
  }
#endif
  return regs;
}

/* Which register files the operating system saves on a task switch: without the YMM bit, AVX
 * state would be lost silently, whatever cpuid says. Only legal after the OSXSAVE bit was seen. */
static uint32_t xcr0(void) {
#if defined(_MSC_VER)
  return (uint32_t)_xgetbv(0);
#else
  uint32_t eax, edx;
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax;
#endif
}

int amn_cpu_has_avx2_f16c(void) {
  const uint32_t wanted = CPUID1_ECX_OSXSAVE | CPUID1_ECX_AVX | CPUID1_ECX_F16C;
  if ((cpuid(1).ecx & wanted) != wanted) return 0;
  if ((xcr0() & XCR0_SSE_AND_YMM) != XCR0_SSE_AND_YMM) return 0;
  return (cpuid(7).ebx & CPUID7_EBX_AVX2) != 0;
}

int amn_crc32_supported(void) {
  if ((cpuid(1).ecx & CPUID1_ECX_PCLMULQDQ) == 0) return 0;
  return amn_cpu_has_avx2_f16c() && (cpuid(7).ecx & CPUID7_ECX_VPCLMULQDQ) ? 256 : 128;
}

#else /* NEON is aarch64's baseline */

int amn_crc32_supported(void) {
  return 0;
}

#endif
