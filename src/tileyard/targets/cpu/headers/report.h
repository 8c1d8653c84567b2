/* What a launch tells besides its results: failures, and lines that are printed. */
#ifndef TY_REPORT_H
#define TY_REPORT_H

#include "compilers.h"

/* The first failure of a thread in a block: the number of its site, the number that was wrong there, and
   another site that it has to do with, 0 for none. */
typedef struct {
  int32_t site;
  int64_t value;
  int32_t other;
} ty_fault;

#define TY_SITES 3
#define TY_TEXT 480

/* Given by the host behind the arrays. `lines` has, for the statements of the Program by number, where
   the user wrote them, as in "kernels.py:41: ", or NULL. With `is_quiet` nothing is printed. The first thread that fails tells the rest:
   `sites` are those of its failure, with the value that was wrong, or values as text. */
typedef struct {
  const char *const *lines;
  int32_t line_count;
  int32_t is_quiet;
  int32_t is_taken;
  int32_t site_count;
  int32_t sites[TY_SITES];
  int64_t value;
  char text[TY_TEXT];
} ty_report;

extern int dprintf(int, const char *, ...);
extern int vsnprintf(char *, size_t, const char *, __builtin_va_list);

/* Prints a line that begins with where the user wrote the statement, whole among other threads'. */
#define TY_PRINT(report, statement, format, ...)                                                   \
  ((report)->is_quiet ||                                                                           \
   dprintf(1, "%s" format "\n", ty_line(report, statement), ##__VA_ARGS__))

/* Where the user wrote a statement, ready to be put in front of a message. */
TY_INLINE const char *ty_line(const ty_report *report, int32_t statement) {
  const char *found = statement < report->line_count ? report->lines[statement] : NULL;
  return found ? found : "";
}

#define TY_COLD static __attribute__((cold, noinline, unused))

TY_INLINE int ty_is_first(ty_report *report) {
  return !__atomic_exchange_n(&report->is_taken, 1, __ATOMIC_RELAXED);
}

/* Ends a launch for what `fault` says. What a kernel returns is 0 where all is well. */
TY_COLD int32_t ty_failed(ty_report *report, const ty_fault *fault) {
  if (ty_is_first(report)) {
    report->sites[0] = fault->site;
    report->sites[1] = fault->other;
    report->site_count = fault->other ? 2 : 1;
    report->value = fault->value;
  }
  return 1;
}

/* In sanitized kernels, notes in their shadow that bytes of a tile are written. */
TY_INLINE void ty_note_written(void *place, int64_t bytes, int64_t shadow) {
  if (bytes > 0)
    memset((char *)place + shadow, 1, (size_t)bytes);
}

/* Reports a read at `site` of bytes of which the shadow says that some are not written; the last write to
   their tile was at site `last`. Gives their address. */
TY_INLINE const void *ty_require_written(const void *place, int64_t bytes, int64_t shadow, ty_fault *fault,
                                         int32_t site, int32_t last) {
  if (bytes > 0 && !fault->site && memchr((const char *)place + shadow, 0, (size_t)bytes))
    *fault = (ty_fault){site, 0, last};
  return place;
}

/* Ends a launch at one site; the values that matter there are printed as `format` says. */
TY_COLD int32_t ty_fail(ty_report *report, int32_t site, const char *format, ...) {
  if (ty_is_first(report)) {
    report->sites[0] = site;
    report->site_count = 1;
    __builtin_va_list values;
    __builtin_va_start(values, format);
    vsnprintf(report->text, TY_TEXT, format, values);
    __builtin_va_end(values);
  }
  return 1;
}

/* Ends a launch at several sites at once, the first `TY_SITES` of them. */
TY_COLD int32_t ty_stuck(ty_report *report, const int32_t *sites, int32_t count) {
  if (ty_is_first(report)) {
    report->site_count = count < TY_SITES ? count : TY_SITES;
    for (int32_t i = 0; i < report->site_count; ++i)
      report->sites[i] = sites[i];
  }
  return 1;
}

#endif
