/* What a thread does between two looks at memory that another thread will write. */
#ifndef COW_RELAX_H
#define COW_RELAX_H

static inline void cow_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory"); /* yield does nothing on most cores */
#endif
}

#endif
