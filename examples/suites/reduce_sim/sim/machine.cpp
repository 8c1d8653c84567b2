#include "machine.h"

#include <cstdio>
#include <cstdlib>

namespace sim {

void fail(const std::string& what) {
  std::fprintf(stderr, "sim: %s\n", what.c_str());
  std::exit(1);
}

void Machine::read(const char* name, void* data, size_t bytes) {
  const std::string path = folder_ + "/" + name;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) fail("cannot open " + path);
  const size_t found = std::fread(data, 1, bytes, file);
  const bool is_longer = std::fgetc(file) != EOF;
  std::fclose(file);
  if (found != bytes || is_longer) fail(path + " has not the size of its shape");
}

void Machine::write(const char* name, const void* data, size_t bytes) {
  const std::string path = folder_ + "/" + name;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file || std::fwrite(data, 1, bytes, file) != bytes || std::fclose(file)) {
    fail("cannot write " + path);
  }
}

}  // namespace sim
