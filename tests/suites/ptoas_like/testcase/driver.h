// What the drivers share: files, and running the cases that are asked for.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

inline bool ReadFile(const std::string& path, void* data, size_t bytes) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  const bool ok = file && std::fread(data, 1, bytes, file) == bytes;
  if (file) std::fclose(file);
  if (!ok) std::fprintf(stderr, "[ERROR] failed to read %s\n", path.c_str());
  return ok;
}

inline bool WriteFile(const std::string& path, const void* data, size_t bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool ok = file && std::fwrite(data, 1, bytes, file) == bytes;
  if (file) std::fclose(file);
  return ok;
}

// Runs all cases, or the one that is named; the first that fails hides the others.
template <typename Case, size_t kCount, typename Run>
int RunCases(int argc, char** argv, const Case (&cases)[kCount], Run run) {
  const char* filter = argc > 1 ? argv[1] : nullptr;
  const char* device = std::getenv("ACL_DEVICE_ID");
  for (const Case& one : cases) {
    if (filter && std::strcmp(filter, one.name)) continue;
    std::printf("[INFO] case %s on device %s\n", one.name, device ? device : "0");
    if (!run(one)) return 1;
  }
  return 0;
}
