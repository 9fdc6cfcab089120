/* A loader of OpenCL with drivers that no machine should have: one that fails, one without devices, and one
   whose devices are of no use but for the second. Only what is asked for to list devices does anything. */
#include <stdint.h>
#include <string.h>

/* Numbers of OpenCL's, whose header would declare the functions below with other types. */
enum { SUCCESS = 0, DEVICE_NOT_FOUND = -1, OUT_OF_HOST_MEMORY = -6, INVALID_VALUE = -30 };
enum { PLATFORM_NAME = 0x0902 };
enum {
  MAX_WORK_GROUP_SIZE = 0x1004,
  ADDRESS_BITS = 0x100D,
  MAX_MEM_ALLOC_SIZE = 0x1010,
  ENDIAN_LITTLE = 0x1026,
  AVAILABLE = 0x1027,
  COMPILER_AVAILABLE = 0x1028,
  DEVICE_NAME = 0x102B,
  DEVICE_VERSION = 0x102F
};
enum { FAILING, EMPTY, ODD, PLATFORMS };
enum { OLD, GOOD, SMALL, MUTE, BIG_ENDIAN, DEVICES };

static char platforms[PLATFORMS], devices[DEVICES]; /* their addresses are the handles */

static int answer(const void* from, size_t bytes, size_t room, void* to, size_t* size) {
  if (size != NULL) *size = bytes;
  if (to == NULL) return SUCCESS;
  if (room < bytes) return INVALID_VALUE;
  memcpy(to, from, bytes);
  return SUCCESS;
}
static int answer_text(const char* text, size_t room, void* to, size_t* size) {
  return answer(text, strlen(text) + 1, room, to, size);
}
static int answer_number(uint32_t number, size_t room, void* to, size_t* size) {
  return answer(&number, sizeof number, room, to, size);
}

int clGetPlatformIDs(uint32_t room, void** to, uint32_t* count) {
  if (count != NULL) *count = PLATFORMS;
  for (uint32_t number = 0; to != NULL && number < room && number < PLATFORMS; ++number)
    to[number] = &platforms[number];
  return SUCCESS;
}
int clGetPlatformInfo(void* platform, uint32_t which, size_t room, void* to, size_t* size) {
  static const char* const names[] = {"Failing", "Empty", "Odd"};
  if (which != PLATFORM_NAME) return answer_text("1.0", room, to, size);
  return answer_text(names[(char*)platform - platforms], room, to, size);
}
int clGetDeviceIDs(void* platform, uint64_t kind, uint32_t room, void** to, uint32_t* count) {
  (void)kind;
  if (platform == &platforms[FAILING]) return OUT_OF_HOST_MEMORY;
  if (platform == &platforms[EMPTY]) return DEVICE_NOT_FOUND;
  if (count != NULL) *count = DEVICES;
  for (uint32_t number = 0; to != NULL && number < room && number < DEVICES; ++number)
    to[number] = &devices[number];
  return SUCCESS;
}
int clGetDeviceInfo(void* device, uint32_t which, size_t room, void* to, size_t* size) {
  static const char* const names[] = {"Old", "Good", "Small", "Mute", "Big-endian"};
  const size_t one_item = 1;
  const uint64_t gibibyte = 1 << 30;
  switch (which) {
    case DEVICE_NAME:
      return answer_text(names[(char*)device - devices], room, to, size);
    case DEVICE_VERSION:
      return answer_text(device == &devices[OLD] ? "OpenCL 1.1 odd" : "OpenCL 3.0", room, to, size);
    case AVAILABLE:
      return answer_number(1, room, to, size);
    case COMPILER_AVAILABLE:
      return answer_number(device != &devices[MUTE], room, to, size);
    case ENDIAN_LITTLE:
      return answer_number(device != &devices[BIG_ENDIAN], room, to, size);
    case ADDRESS_BITS:
      return answer_number(device == &devices[SMALL] ? 32 : 64, room, to, size);
    case MAX_MEM_ALLOC_SIZE:
      return answer(&gibibyte, sizeof gibibyte, room, to, size);
    case MAX_WORK_GROUP_SIZE:
      return answer(&one_item, sizeof one_item, room, to, size);
    default:
      return INVALID_VALUE;
  }
}

#define NOT_HERE(name) \
  int name(void) { return OUT_OF_HOST_MEMORY; }
NOT_HERE(clRetainContext)
NOT_HERE(clGetContextInfo)
NOT_HERE(clGetCommandQueueInfo)
NOT_HERE(clRetainMemObject)
NOT_HERE(clReleaseMemObject)
NOT_HERE(clGetMemObjectInfo)
NOT_HERE(clEnqueueReadBuffer)
NOT_HERE(clEnqueueWriteBuffer)
NOT_HERE(clEnqueueCopyBuffer)
NOT_HERE(clEnqueueFillBuffer)
NOT_HERE(clEnqueueMigrateMemObjects)
NOT_HERE(clEnqueueMarkerWithWaitList)
NOT_HERE(clWaitForEvents)
NOT_HERE(clReleaseEvent)
NOT_HERE(clGetEventProfilingInfo)
NOT_HERE(clFlush)
NOT_HERE(clFinish)
NOT_HERE(clBuildProgram)
NOT_HERE(clGetProgramBuildInfo)
NOT_HERE(clGetProgramInfo)
NOT_HERE(clReleaseProgram)
NOT_HERE(clReleaseKernel)
NOT_HERE(clSetKernelArg)
NOT_HERE(clGetKernelWorkGroupInfo)
NOT_HERE(clEnqueueNDRangeKernel)

/* Those that make something: nothing, and the reason in their last argument. */
void* clCreateContext(const void* a, uint32_t b, const void* c, void* d, void* e, int* status) {
  (void)a, (void)b, (void)c, (void)d, (void)e;
  *status = OUT_OF_HOST_MEMORY;
  return NULL;
}
NOT_HERE(clCreateCommandQueue)
NOT_HERE(clCreateBuffer)
NOT_HERE(clCreateProgramWithSource)
NOT_HERE(clCreateProgramWithBinary)
NOT_HERE(clCreateKernel)
