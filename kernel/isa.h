// Which instruction set paths the processor and the operating system grant, and the functions of each path.
#pragma once
#include <string>
#include <vector>

namespace gearshift {

struct LinearPath;
struct RowPath;

struct Path {
    const char* name;
    const LinearPath* linear;
    const RowPath* rows;
};

// Best first, always ending with `portable`. The first call asks the system for AMX; call it before any thread starts.
const std::vector<Path>& granted_paths();
// The best path for an empty name. Throws std::invalid_argument, with the list of what is granted, for another name.
const Path& find_path(const std::string& name);

}  // namespace gearshift
