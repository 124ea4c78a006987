#include "isa.h"

#include <cstdint>
#include <stdexcept>

#include "forward_rows.h"
#include "linear.h"

#ifdef GEARSHIFT_X86
#include <cpuid.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace gearshift {
namespace {

#ifdef GEARSHIFT_X86
struct Processor {
    bool avx2 = false, avx512 = false, amx = false;
};

uint64_t enabled_state() {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low | uint64_t(high) << 32;
}

// Tile data is off until the process asks for it; threads started later inherit the permission.
bool request_amx() {
#if defined(__linux__) && defined(SYS_arch_prctl)
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

Processor look() {
    Processor found;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
    const bool fma = c >> 12 & 1, xsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
    if (!xsave || !avx || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
    constexpr uint64_t YMM = 0x6, ZMM = 0xe6, TILES = 0x60000;
    const uint64_t state = enabled_state();
    const bool bmi = (b >> 3 & 1) && (b >> 8 & 1);
    found.avx2 = (state & YMM) == YMM && fma && f16c && bmi && (b >> 5 & 1);
    const bool f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1, vnni = c >> 11 & 1;
    found.avx512 = found.avx2 && (state & ZMM) == ZMM && f && dq && bw && vl && vnni;
    const bool tile = d >> 24 & 1, tile_int8 = d >> 25 & 1;
    found.amx = found.avx512 && (state & TILES) == TILES && tile && tile_int8 && request_amx();
    return found;
}
#endif

std::vector<Path> find_granted() {
    std::vector<Path> paths;
#ifdef GEARSHIFT_X86
    [[maybe_unused]] const Processor found = look();
#ifdef GEARSHIFT_HAVE_AMX
    if (found.amx) paths.push_back({"amx", &linear_amx, &rows_avx512});
#endif
#ifdef GEARSHIFT_HAVE_AVX512
    if (found.avx512) paths.push_back({"avx512", &linear_avx512, &rows_avx512});
#endif
#ifdef GEARSHIFT_HAVE_AVX2
    if (found.avx2) paths.push_back({"avx2", &linear_avx2, &rows_avx2});
#endif
#endif
    paths.push_back({"portable", &linear_portable, &rows_portable});
    return paths;
}

}  // namespace

const std::vector<Path>& granted_paths() {
    static const std::vector<Path> paths = find_granted();
    return paths;
}

const Path& find_path(const std::string& name) {
    const auto& paths = granted_paths();
    if (name.empty()) return paths.front();
    std::string names;
    for (const Path& path : paths) {
        if (name == path.name) return path;
        names += names.empty() ? "" : ", ";
        names += path.name;
    }
    throw std::invalid_argument("the ISA path '" + name + "' is unknown or not granted by this machine; choose one of: " +
                                names + ", or leave it empty for the best");
}

}  // namespace gearshift
