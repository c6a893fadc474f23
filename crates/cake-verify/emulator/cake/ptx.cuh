// The words of cuda/cake/ptx.cuh, for the host.
#pragma once
#include "cake/types.cuh"

namespace cake {

inline u32 round_one(float value) {
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

inline u32 round_pair(float low, float high) { return round_one(low) | round_one(high) << 16; }

inline u32 clamp_pair(u32 pair, u32 low, u32 high) {
    const auto clamp = [](float value, float least, float most) { return value < least ? least : value > most ? most : value; };
    return round_pair(clamp(low_float(pair), low_float(low), low_float(high)), clamp(high_float(pair), high_float(low), high_float(high)));
}

inline u32 greatest_pair(u32 a, u32 b) {
    return std::max(a & 0xffffu, b & 0xffffu) | std::max(a & 0xffff0000u, b & 0xffff0000u);
}

// A board's approximation may be another neighbour of the quotient; nothing may depend on it.
inline float reciprocal(float value) { return __uint_as_float(__float_as_uint(1.0f / value) + 1); }

inline Unit load_unit(const void* address) {
    Unit unit;
    __builtin_memcpy(&unit, emulator::at(address, sizeof unit, false), sizeof unit);
    return unit;
}

inline Unit load_weight(const void* address) { return load_unit(address); }
inline Unit load_weight_late(const void* address) { return load_unit(address); }

inline void store_unit(void* address, const Unit& unit) {
    __builtin_memcpy(emulator::at(address, sizeof unit, true), &unit, sizeof unit);
}

inline void load_half(const void* address, u32 (&pairs)[2]) {
    __builtin_memcpy(pairs, emulator::at(address, sizeof pairs, false), sizeof pairs);
}

inline void store_half(void* address, const u32 (&pairs)[2]) {
    __builtin_memcpy(emulator::at(address, sizeof pairs, true), pairs, sizeof pairs);
}

template <class T>
const T& readable(const T* address) {
    return *reinterpret_cast<const T*>(emulator::at(address, sizeof(T), false));
}

template <class T>
T& writable(T* address) {
    return *reinterpret_cast<T*>(emulator::at(address, sizeof(T), true));
}

// What L2 fetches must be in a tensor, as what is read.
inline void fetch_ahead(const void* address, u32 bytes) {
    emulator::expect(bytes % 16 == 0, "a fetch of no multiple of 16 bytes");
    for (u32 at = 0; at < bytes; at += 16) load_unit(static_cast<const char*>(address) + at);
}

inline void touch(const void* address) { load_unit(address); }

inline void forget(u32&) {}
inline void forget(Unit&) {}

inline u32 add_release(u32* word, u32 value) {
    return __atomic_fetch_add(reinterpret_cast<u32*>(emulator::at(word, sizeof *word, true)), value, __ATOMIC_ACQ_REL);
}

inline u32 load_acquire(const u32* word) {
    // CTAs are more than cores. When one has failed, its word may never come: any other value lets the rest go on.
    std::this_thread::yield();
    static thread_local u32 flipped;
    if (*emulator::machine.abandoned) flipped ^= 0x80000000u;
    return __atomic_load_n(reinterpret_cast<u32*>(emulator::at(word, sizeof *word, false)), __ATOMIC_ACQUIRE) ^ flipped;
}

inline void add_double(double* number, double value) {
    std::atomic_ref<double>(*reinterpret_cast<double*>(emulator::at(number, sizeof *number, true))).fetch_add(value);
}

inline double load_double(const double* number) {
    return std::atomic_ref<double>(*reinterpret_cast<double*>(emulator::at(number, sizeof *number, false))).load();
}

inline float* dynamic_shared() { return emulator::dynamic_memory(); }

}  // namespace cake
