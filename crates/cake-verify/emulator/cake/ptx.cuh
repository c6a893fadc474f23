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

// Accesses of 16 bytes must be aligned, as on the device.
inline Unit load_unit(const void* address) {
    emulator::expect(reinterpret_cast<unsigned long long>(address) % 16 == 0, "a misaligned load of 16 bytes");
    Unit unit;
    __builtin_memcpy(&unit, address, sizeof unit);
    return unit;
}

inline Unit load_weight(const void* address) { return load_unit(address); }

inline void store_unit(void* address, const Unit& unit) {
    emulator::expect(reinterpret_cast<unsigned long long>(address) % 16 == 0, "a misaligned store of 16 bytes");
    __builtin_memcpy(address, &unit, sizeof unit);
}

// Only notes what L2 would fetch: whoever launches compares that with the tensors.
inline void fetch_ahead(const void* address, u32 bytes) {
    const auto first = reinterpret_cast<unsigned long long>(address);
    emulator::expect(bytes % 16 == 0 && first % 16 == 0, "a misaligned fetch");
    emulator::machine.fetched.insert(emulator::machine.fetched.end(), {first, first + bytes});
}

inline void forget(Unit&) {}

inline u32 add_release(u32* word, u32 value) {
    const u32 before = *word;
    *word = before + value;
    return before;
}

inline u32 load_acquire(const u32* word) { return *word; }

inline float* dynamic_shared() { return emulator::dynamic_memory(); }

}  // namespace cake
