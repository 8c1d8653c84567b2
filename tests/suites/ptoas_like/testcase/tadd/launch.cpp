void tadd_f32(float* dst, const float* src0, const float* src1, int n);
void tadd_i32(int* dst, const int* src0, const int* src1, int n);

void LaunchTADD(float* dst, const float* a, const float* b, int n) { tadd_f32(dst, a, b, n); }
void LaunchTADD(int* dst, const int* a, const int* b, int n) { tadd_i32(dst, a, b, n); }
