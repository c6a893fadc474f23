// Parameters of the probes; mirrors `ForwardParams` of cake-kernels/src/probe.rs.
#pragma once
#include "cake/types.cuh"

namespace cake::probe {

// Streams of memory that are read and written.
struct Streams {
    u32 read, written;
};

namespace forms {
constexpr Streams plain = {2, 1}, r3 = {3, 1}, r3w2 = {3, 2};
}

struct ForwardParams {
    u32* barrier;  // word of the grid barrier
    u32* cells;    // one word for each CTA
    u32* errors;   // counts what a CTA saw that it should not have seen
    u32 rounds;
    u32 units;  // of 16 bytes, to add
    const Unit* inputs[3];
    Unit* outputs[2];
};

}  // namespace cake::probe
