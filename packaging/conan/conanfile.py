"""The C++ library for Conan 2: `conan create packaging/conan` in a checkout."""

import os

from conan import ConanFile
from conan.tools.build import check_min_cppstd, stdcpp_library
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

SOURCES = ("CMakeLists.txt", "LICENSE", "bindings/CMakeLists.txt", "cmake/*", "include/*", "src/*")


class Kronsparse(ConanFile):
    name = "kronsparse"
    description = "Multiplies dense batches by Kronecker-sparse matrices"
    license = "MIT"
    topics = ("linear-algebra", "sparse", "butterfly", "monarch", "cuda", "opencl")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "cuda": [True, False], "opencl": [True, False]}
    default_options = {"shared": False, "fPIC": True, "cuda": False, "opencl": False}
    implements = ["auto_shared_fpic"]

    def _checkout(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        # The version is in the top CMakeLists.txt and nowhere else.
        text = load(self, os.path.join(self._checkout(), "CMakeLists.txt"))
        self.version = text.split("VERSION ", 2)[2].split()[0]

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, self._checkout(), self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        # Compiled in: whoever links kronsparse needs none of it.
        self.requires("fmt/[>=9 <13]", visible=False)
        if self.options.opencl:
            self.requires("opencl-headers/[>=2022]", visible=False)

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("BUILD_CLI", "BUILD_TESTS", "PYTHON", "TORCH"):
            toolchain.cache_variables[f"KRONSPARSE_{part}"] = "OFF"
        toolchain.cache_variables["KRONSPARSE_CUDA"] = "ON" if self.options.cuda else "OFF"
        toolchain.cache_variables["KRONSPARSE_OPENCL"] = "ON" if self.options.opencl else "OFF"
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        for made_by_conan in ("cmake", "pkgconfig"):
            rmdir(self, os.path.join(self.package_folder, "lib", made_by_conan))
        rmdir(self, os.path.join(self.package_folder, "share"))

    def package_info(self):
        self.cpp_info.libs = ["kronsparse"]
        self.cpp_info.set_property("cmake_file_name", "kronsparse")
        self.cpp_info.set_property("cmake_target_name", "kronsparse::kronsparse")
        self.cpp_info.set_property("pkg_config_name", "kronsparse")
        if not self.options.shared:
            self.cpp_info.defines = ["KRONSPARSE_STATIC"]
            self.cpp_info.system_libs = ["m", "pthread", "dl"]
            # For who links from C.
            if library := stdcpp_library(self):
                self.cpp_info.system_libs.append(library)
            if self.options.cuda:
                self.cpp_info.system_libs += ["cudart_static", "rt"]
