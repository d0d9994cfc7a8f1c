/*
 * Preloaded under callgrind (tools/callgrind.sh): io_uring_enter that waits in ppoll.
 *
 * Valgrind runs one thread at a time and takes io_uring_enter for a call that never sleeps: a reactor that waits in it
 * stops every other thread for good. Here it gives in what there is, waits for the ring in ppoll, which valgrind knows
 * to sleep, and then has the kernel do what is due.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <time.h>

#define ENTER 426
#define FLAG_GETEVENTS 1

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* In place of the C library's. */
long syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number != ENTER || c == 0 || !(d & FLAG_GETEVENTS))
        return call(number, a, b, c, d, e, f);
    long submitted = call(ENTER, a, b, 0, d & ~FLAG_GETEVENTS, e, f);
    if (submitted < 0)
        return submitted;
    struct pollfd ring = { .fd = (int)a, .events = POLLIN };
    /* Never long: a ring that was never polled before may miss to tell. The reactor only looks again. */
    const struct timespec millisecond = { .tv_nsec = 1000000 };
    ppoll(&ring, 1, &millisecond, 0);
    return call(ENTER, a, 0, 0, d, e, f) < 0 ? -1 : submitted;
}
