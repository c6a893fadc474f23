// Parameters of the probes; mirrors `ForwardParams` of cake-kernels/src/probe.rs.
#pragma once
#include "cake/types.cuh"

namespace cake::probe {

struct ForwardParams {
    u32* barrier;  // word of the grid barrier
    u32* cells;    // one word for each CTA
    u32* errors;   // counts what a CTA saw that it should not have seen
    u32 rounds;
    u32 units;  // of 16 bytes, to add
    const Unit* inputs[3];
    Unit* output;
};

}  // namespace cake::probe
