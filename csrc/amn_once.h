/* What must run once in a process, whichever thread comes first. Apart from amn_platform.h, since
 * <windows.h> takes many short names from those who include it. */
#ifndef AMN_ONCE_H
#define AMN_ONCE_H

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

typedef INIT_ONCE amn_once;
#define AMN_ONCE_INIT INIT_ONCE_STATIC_INIT

typedef struct {
  void (*run)(void);
} amn_once_job;

static inline BOOL CALLBACK amn_once_call(PINIT_ONCE once, PVOID job, PVOID *context) {
  (void)once, (void)context;
  ((const amn_once_job *)job)->run();
  return TRUE;
}

/* Every caller returns after `run` has. */
static inline void amn_run_once(amn_once *once, void (*run)(void)) {
  amn_once_job job = {run};
  InitOnceExecuteOnce(once, amn_once_call, &job, NULL);
}

#else

#include <pthread.h>

typedef pthread_once_t amn_once;
#define AMN_ONCE_INIT PTHREAD_ONCE_INIT

static inline void amn_run_once(amn_once *once, void (*run)(void)) {
  pthread_once(once, run);
}

#endif

#endif /* AMN_ONCE_H */
