/* Loaded into a node before the C library: each read, write and sync of a file takes as many milliseconds longer as the
 * first four bytes say of the file that TREFOIL_SLOW_DISK names. What is read through a map takes as long as ever. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static volatile const uint32_t *longer_ms;

__attribute__((constructor)) static void find(void)
{
    const char *path = getenv("TREFOIL_SLOW_DISK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0)
        return;
    void *map = mmap(NULL, sizeof *longer_ms, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED)
        longer_ms = map;
    close(file);
}

static void wait_for_the_disk(void)
{
    uint32_t ms = longer_ms ? *longer_ms : 0;
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (ms && nanosleep(&left, &left) != 0)
        ;
}

#define SLOW(result, name, types, arguments)                \
    result name types                                       \
    {                                                       \
        static result(*next) types;                         \
        if (!next)                                          \
            next = (result(*) types)dlsym(RTLD_NEXT, #name); \
        wait_for_the_disk();                                \
        return next arguments;                              \
    }

SLOW(int, fsync, (int file), (file))
SLOW(int, fdatasync, (int file), (file))
SLOW(ssize_t, pread64, (int file, void *to, size_t bytes, off64_t at), (file, to, bytes, at))
SLOW(ssize_t, pwrite64, (int file, const void *from, size_t bytes, off64_t at), (file, from, bytes, at))
