"""What the engines need from the machine: Spark, Java, JSON, the version of the code."""
