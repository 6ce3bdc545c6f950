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
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#define AMN_CPUID1_ECX_PCLMULQDQ (1u << 1)
#define AMN_CPUID1_ECX_FMA (1u << 12)
#define AMN_CPUID1_ECX_OSXSAVE (1u << 27)
#define AMN_CPUID1_ECX_AVX (1u << 28)
#define AMN_CPUID1_ECX_F16C (1u << 29)
#define AMN_CPUID7_EBX_AVX2 (1u << 5)
#define AMN_CPUID7_EBX_AVX512_F (1u << 16)
#define AMN_CPUID7_EBX_AVX512_DQ (1u << 17)
#define AMN_CPUID7_EBX_AVX512_BW (1u << 30)
#define AMN_CPUID7_EBX_AVX512_VL (1u << 31)
#define AMN_CPUID7_ECX_AVX512_VBMI (1u << 1)
#define AMN_CPUID7_ECX_VPCLMULQDQ (1u << 10)
#define AMN_XCR0_SSE_AND_YMM 0x06u
#define AMN_XCR0_OPMASK_AND_ZMM 0xe0u

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

static inline int amn_cpu_has_fma(void) {
  return (amn_cpuid(1).ecx & AMN_CPUID1_ECX_FMA) != 0;
}

#if defined(__APPLE__)
/* macOS gives a thread the state of AVX-512 at its first use: until then xgetbv says no. */
static inline int amn_saves_avx512(void) {
  int has = 0;
  size_t n_bytes = sizeof has;
  return sysctlbyname("hw.optional.avx512f", &has, &n_bytes, NULL, 0) == 0 && has;
}
#else
static inline int amn_saves_avx512(void) {
  return (amn_xcr0() & AMN_XCR0_OPMASK_AND_ZMM) == AMN_XCR0_OPMASK_AND_ZMM;
}
#endif

/* F, VL, BW, DQ and VBMI: Intel's since Ice Lake, AMD's since Zen 4. */
static inline int amn_cpu_has_avx512(void) {
  const uint32_t wanted = AMN_CPUID7_EBX_AVX512_F | AMN_CPUID7_EBX_AVX512_DQ |
                          AMN_CPUID7_EBX_AVX512_BW | AMN_CPUID7_EBX_AVX512_VL;
  if (!amn_cpu_has_avx2_f16c()) return 0;
  if ((amn_cpuid(7).ebx & wanted) != wanted) return 0;
  if (!(amn_cpuid(7).ecx & AMN_CPUID7_ECX_AVX512_VBMI)) return 0;
  return amn_saves_avx512();
}

/* From how many bytes on a decoder's results of so many bytes each are stored past the caches; 0 is
 * never. Plain stores wait for the lines that they overwrite; what it costs instead to store twice,
 * to a cache and from there, differs (csrc/NOTES.md, "Outputs larger than the caches"). */
static inline uint64_t amn_cpu_streamed_from(int item_bytes) {
  static const struct {
    char vendor[13];
    uint32_t family; /* and later ones */
    uint64_t of_2, of_4;
  } rows[] = {
      {"GenuineIntel", 6, (uint64_t)16 << 20, (uint64_t)16 << 20},
      {"AuthenticAMD", 0x1a, 0, (uint64_t)16 << 20}, /* Zen 5 */
  };
  const amn_cpuid_regs regs = amn_cpuid(0);
  const uint32_t version = amn_cpuid(1).eax, base = version >> 8 & 15;
  const uint32_t family = base == 15 ? base + (version >> 20 & 255) : base;
  char vendor[13] = {0};
  memcpy(vendor, &regs.ebx, 4);
  memcpy(vendor + 4, &regs.edx, 4);
  memcpy(vendor + 8, &regs.ecx, 4);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (memcmp(vendor, rows[i].vendor, sizeof vendor) == 0 && family >= rows[i].family)
      return item_bytes == 4 ? rows[i].of_4 : rows[i].of_2;
  return 0;
}

static inline int amn_cpu_has_pclmul(void) {
  return (amn_cpuid(1).ecx & AMN_CPUID1_ECX_PCLMULQDQ) != 0;
}

static inline int amn_cpu_has_vpclmul(void) {
  return amn_cpu_has_avx2_f16c() && (amn_cpuid(7).ecx & AMN_CPUID7_ECX_VPCLMULQDQ) != 0;
}

#elif defined(AMN_ARCH_AARCH64) /* NEON is its baseline */

#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#endif

static inline uint64_t amn_cpu_streamed_from(int item_bytes) {
  (void)item_bytes;
  return 0; /* not measured */
}

/* Of every Apple processor; of others since ARMv8.1. */
static inline int amn_cpu_has_crc32(void) {
#if defined(__APPLE__)
  return 1;
#elif defined(__linux__)
  return (getauxval(AT_HWCAP) & (1u << 7)) != 0; /* HWCAP_CRC32 */
#elif defined(_WIN32)
  return IsProcessorFeaturePresent(31) != 0; /* PF_ARM_V8_CRC32_INSTRUCTIONS_AVAILABLE */
#else
  return 0;
#endif
}

#endif

#endif /* AMN_CPU_H */
