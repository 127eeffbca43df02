// The launcher apart from the binding: raw pointers here, tensors in another file.

__global__ void add(float *a, float *b, float *c)
{
    int idx = threadIdx.x + blockIdx.x * blockDim.x;  // expect: int32-index
    c[idx] = a[idx] + b[idx];  // expect: missing-bounds-check
}

__global__ void add_strided(const float *a, const float *b, float *c, unsigned n)  // expect: int32-index
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)  // expect: int32-index
        c[i] = a[i] + b[i];
}

extern "C" void launch_add(float *a, float *b, float *c, int n)
{
    dim3 block(128);
    dim3 grid((n + block.x - 1) / block.x);
    add<<<grid, block>>>(a, b, c);  // expect: default-stream, unchecked-launch
    cudaError_t error = cudaDeviceSynchronize();  // expect: device-synchronise
    if (error != cudaSuccess)  // tells of a launch that went wrong, not of one that was refused
        printf("%s\n", cudaGetErrorString(error));
}

extern "C" void launch_add_strided(const float *a, const float *b, float *c, unsigned n)
{
    cudaStream_t stream = 0;
    float *copy;
    cudaMalloc(&copy, n * sizeof(float));
    cudaMemcpyAsync(copy, a, n * sizeof(float), cudaMemcpyDeviceToDevice);  // expect: default-stream
    cudaMemset(c, 0, n * sizeof(float));  // expect: default-stream
    add_strided<<<64, 256, 0, stream>>>(copy, b, c, n);  // expect: default-stream, unchecked-launch
    void *arguments[] = {&a, &b, &c, &n};
    // expect on the next line: default-stream
    cudaLaunchKernel((void *)add_strided, dim3(64), dim3(256), arguments, 0, 0);
    cudaFree(copy);  // expect: device-synchronise
}
