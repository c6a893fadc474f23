// Runs kernels on the host: what CUDA C++ spells is defined here, each CUDA thread is a fiber, and a scheduler switches
// fibers at barriers and shuffles. CTAs run one at a time, or, where they wait for each other, each on an OS thread of its
// own. Slow, and deterministic within a CTA.
//
// Addresses of the device are looked up in a list of windows, which say where their bytes are on the host; so rows may lie
// as far apart as a test likes.
//
// What it finds: wrong bits, stray, misaligned and forbidden accesses, barriers that some threads never reach, and shared
// memory that is used before a barrier, because the order of fibers and warps is a parameter and results must not depend on it.
// What it does not find: races between CTAs, memory order, anything of a board's own.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
// An OS thread runs one CTA at a time.
#define __shared__ static thread_local

struct Index {
    unsigned x, y, z;
};
inline thread_local Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

// Device addresses first .. last, and their bytes; mirrored by `Window` of tests/emulated/emulator.rs.
struct Window {
    unsigned long long first, last;
    char* memory;
    unsigned long long writable;
};

enum class At { running, block, warp, done };

struct Fiber {
    ucontext_t context;
    At at;
    unsigned shuffles;
    std::unique_ptr<char[]> stack;
};

constexpr unsigned stack_bytes = 64 << 10;

struct Machine {
    ucontext_t scheduler;
    std::vector<Fiber> fibers;
    std::vector<unsigned> exchange[2];  // what the lanes of a shuffle show each other; two, as one may run ahead
    std::vector<float> dynamic;
    const Window* windows;
    unsigned long long window_count;
    alignas(16) char nowhere[16];  // takes the place of what may not be touched
    std::string error;
    std::atomic<bool>* abandoned;  // a CTA of the launch has failed: those that wait for it must go on
    unsigned current;
    void (*body)(void*);
    void* argument;
};

inline thread_local Machine machine;

// Aligned to 16 bytes, as on the device.
inline float* dynamic_memory() {
    const auto address = reinterpret_cast<unsigned long long>(machine.dynamic.data());
    return machine.dynamic.data() + (16 - address % 16) % 16 / sizeof(float);
}

// Leaves the current fiber until the scheduler lets it go on.
inline void wait(At where) {
    Fiber& fiber = machine.fibers[machine.current];
    fiber.at = where;
    swapcontext(&fiber.context, &machine.scheduler);
}

inline void expect(bool holds, const char* fault) {
    if (holds || !machine.error.empty()) return;
    machine.error = std::string(fault) + ", CTA " + std::to_string(blockIdx.x) + ", thread " + std::to_string(threadIdx.x);
}

// Where the bytes of a device address are; they must lie in a window.
inline char* at(const void* address, unsigned bytes, bool write) {
    const auto first = reinterpret_cast<unsigned long long>(address);
    expect(first % bytes == 0, "a misaligned access");
    for (unsigned long long i = 0; i < machine.window_count; ++i) {
        const Window& window = machine.windows[i];
        if (first < window.first || first + bytes > window.last || (write && !window.writable)) continue;
        return window.memory + (first - window.first);
    }
    expect(false, write ? "a write that hits no output" : "a read that hits no tensor");
    return machine.nowhere;
}

inline void enter() {
    machine.body(machine.argument);
    machine.fibers[machine.current].at = At::done;
    swapcontext(&machine.fibers[machine.current].context, &machine.scheduler);
}

// Lets the threads of [first, last) go on if all of them that have not left wait at `where`.
inline bool release(unsigned first, unsigned last, At where) {
    bool any = false;
    for (unsigned t = first; t < last; ++t) {
        if (machine.fibers[t].at != where && machine.fibers[t].at != At::done) return false;
        any |= machine.fibers[t].at == where;
    }
    for (unsigned t = first; any && t < last; ++t) {
        if (machine.fibers[t].at == where) machine.fibers[t].at = At::running;
    }
    return any;
}

// The t-th fiber to run: upwards, downwards, or strided, so that shared memory used without a barrier shows. Or warp by warp,
// the last or the first one first: each runs ahead of the others, through its shuffles, to the next barrier of the CTA.
constexpr unsigned warps_down = 3, warps_up = 4;

inline unsigned in_order(unsigned t, unsigned threads, unsigned order) {
    if (order == 0 || order == warps_up) return t;
    if (order == 1 || order == warps_down) return threads - 1 - t;
    return (t * 37 + 11) % threads;  // thread counts are multiples of 32
}

inline void run_cta(unsigned threads, unsigned order) {
    for (Fiber& fiber : machine.fibers) {
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = stack_bytes;
        fiber.context.uc_link = nullptr;
        fiber.at = At::running;
        fiber.shuffles = 0;
        makecontext(&fiber.context, enter, 0);
    }
    for (unsigned left = threads; left > 0;) {
        bool moved = false;
        for (unsigned i = 0; i < threads; ++i) {
            const unsigned t = in_order(i, threads, order);
            if (machine.fibers[t].at != At::running) continue;
            machine.current = t;
            threadIdx = {t, 0, 0};
            swapcontext(&machine.scheduler, &machine.fibers[t].context);
            moved = true;
            left -= machine.fibers[t].at == At::done;
            const bool ahead = order >= warps_down && i % 32 == 31;
            if (ahead && release(t / 32 * 32, t / 32 * 32 + 32, At::warp)) i -= 32;
        }
        for (unsigned warp = 0; warp < threads; warp += 32) moved |= release(warp, warp + 32, At::warp);
        moved |= release(0, threads, At::block);
        if (!moved && left > 0) {
            expect(false, "threads wait for each other at different barriers");
            return;
        }
    }
}

struct Launch {
    unsigned grid, threads, shared, order;
    const Window* windows;
    unsigned long long window_count;
    void (*body)(void*);
    void* argument;
};

// Runs CTAs first, first + step, ... on this thread.
inline void run_ctas(const Launch& launch, unsigned first, unsigned step, std::atomic<bool>& abandoned) {
    machine.error.clear();
    machine.abandoned = &abandoned;
    machine.windows = launch.windows;
    machine.window_count = launch.window_count;
    machine.body = launch.body;
    machine.argument = launch.argument;
    while (machine.fibers.size() < launch.threads) {
        machine.fibers.push_back({{}, At::done, 0, std::make_unique_for_overwrite<char[]>(stack_bytes)});
    }
    machine.fibers.resize(launch.threads);
    for (auto& words : machine.exchange) words.assign(launch.threads, 0);
    blockDim = {launch.threads, 1, 1};
    gridDim = {launch.grid, 1, 1};
    for (unsigned cta = first; cta < launch.grid && machine.error.empty(); cta += step) {
        blockIdx = {cta, 0, 0};
        machine.dynamic.assign(launch.shared / sizeof(float) + 4, NAN);
        run_cta(launch.threads, launch.order);
    }
    if (!machine.error.empty()) abandoned = true;
}

// Runs a launch, with `together` all CTAs at once; an empty string, or what went wrong.
inline const char* run(const Launch& launch, bool together) {
    static thread_local std::string error;
    error.clear();
    std::atomic<bool> abandoned = false;
    if (!together && launch.order < warps_down) {
        run_ctas(launch, 0, 1, abandoned);
        error = machine.error;
        return error.c_str();
    }
    // One after the other all the same, each on a thread of its own: static shared memory holds nothing of the CTA before.
    for (unsigned cta = 0; !together && cta < launch.grid && error.empty(); ++cta) {
        std::string& fault = error;
        std::thread([&] {
            run_ctas(launch, cta, launch.grid, abandoned);
            fault = machine.error;
        }).join();
    }
    if (!together) return error.c_str();
    std::vector<std::string> errors(launch.grid);
    std::vector<std::thread> ctas;
    for (unsigned cta = 0; cta < launch.grid; ++cta) {
        ctas.emplace_back([&, cta] {
            run_ctas(launch, cta, launch.grid, abandoned);
            errors[cta] = machine.error;
        });
    }
    for (auto& cta : ctas) cta.join();
    for (auto& one : errors) {
        if (error.empty()) error = one;
    }
    return error.c_str();
}

}  // namespace emulator

inline void __syncthreads() { emulator::wait(emulator::At::block); }

inline void __syncwarp() { emulator::wait(emulator::At::warp); }

namespace emulator {

// Shows `value` to the warp; what lane `from`, counted in the CTA, shows.
inline float shuffle(float value, unsigned from) {
    auto& words = machine.exchange[machine.fibers[machine.current].shuffles++ % 2];
    words[machine.current] = std::bit_cast<unsigned>(value);
    wait(At::warp);
    return std::bit_cast<float>(words[from]);
}

}  // namespace emulator

inline float __shfl_xor_sync(unsigned, float value, unsigned lanes) {
    return emulator::shuffle(value, emulator::machine.current ^ lanes);
}

inline float __shfl_sync(unsigned, float value, unsigned lane, unsigned width) {
    return emulator::shuffle(value, emulator::machine.current / width * width + lane % width);
}

// Compiled without contraction: each operation rounds once.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __double2float_rn(double a) { return float(a); }
inline float __uint2float_rn(unsigned a) { return float(a); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline unsigned __brev(unsigned a) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (a >> bit & 1u) << (31 - bit);
    return reversed;
}
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline int __clz(unsigned a) { return std::countl_zero(a); }
inline unsigned atomicAdd(unsigned* word, unsigned value) {
    const unsigned before = *word;
    *word = before + value;
    return before;
}
[[noreturn]] inline void __trap() { std::abort(); }
