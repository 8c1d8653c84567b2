#include "driver.h"

void LaunchTADD(float* dst, const float* a, const float* b, int n);
void LaunchTADD(int* dst, const int* a, const int* b, int n);

struct TestCase {
  const char* name;
  bool is_float;
  int rows, columns, valid_rows, valid_columns;
};

static const TestCase kCases[] = {
    {"f32_16x64", true, 16, 64, 16, 64},
    {"f32_32x32_valid_31x30", true, 32, 32, 31, 30},
    {"i32_16x64", false, 16, 64, 16, 64},
};

template <typename T>
bool Run(const TestCase& tc) {
  const std::string folder = std::string("./") + tc.name;
  const size_t count = tc.rows * tc.columns;
  std::vector<T> a(count), b(count), dst(count);
  if (!ReadFile(folder + "/input1.bin", a.data(), count * sizeof(T))) return false;
  if (!ReadFile(folder + "/input2.bin", b.data(), count * sizeof(T))) return false;
  for (int row = 0; row < tc.valid_rows; ++row) {
    const int at = row * tc.columns;
    LaunchTADD(&dst[at], &a[at], &b[at], tc.valid_columns);
  }
  return WriteFile(folder + "/output.bin", dst.data(), count * sizeof(T));
}

int main(int argc, char** argv) {
  return RunCases(argc, argv, kCases, [](const TestCase& tc) {
    return tc.is_float ? Run<float>(tc) : Run<int>(tc);
  });
}
