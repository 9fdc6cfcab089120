// Everything of the C++ API.
#pragma once

#include "kronsparse/buffer.hpp"
#include "kronsparse/chain.hpp"
#include "kronsparse/device.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/factorize.hpp"
#include "kronsparse/multiply.hpp"
#include "kronsparse/opencl.hpp"
#include "kronsparse/operator.hpp"
#include "kronsparse/pattern.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/problem.hpp"
#include "kronsparse/profile.hpp"
#include "kronsparse/transforms.hpp"
#include "kronsparse/tune.hpp"
#include "kronsparse/version.hpp"
