// Only there to have the precompiled headers of the unit tests made: see CMakeLists.txt.
