// Which instruction sets this processor has.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace headway {

std::vector<std::string> available_isas();  // the best first

// "auto" is the best; throws std::invalid_argument for one that is unknown or missing.
const Kernels& choose_kernels(const std::string& isa);

}  // namespace headway
